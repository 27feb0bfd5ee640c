"""Cards of all nodes as arrays, with what is placed, assumed and claimed on them."""
