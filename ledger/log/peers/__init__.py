"""Exchange between replicas: the lease, forwarded commands, append notices and hints."""
