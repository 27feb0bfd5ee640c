"""Models of what cannot be had in virtual time: an API server and HAMi, and the operations of a
run."""
