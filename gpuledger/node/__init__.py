"""The node agent as a process, and its commands."""
