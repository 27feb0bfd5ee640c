"""Load generators, and the permissive servers and list server that they are compared with."""
