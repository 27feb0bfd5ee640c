"""The cluster behind all ports: an API server, and the accounts of a HAMi in it."""
