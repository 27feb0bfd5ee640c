"""Restart: the state from a snapshot and the tail of the log, and proof of a whole log."""
