"""nats-server as a child process: its files, its lock, and its end with its parent."""
