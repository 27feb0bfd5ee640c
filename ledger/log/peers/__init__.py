"""What replicas exchange: the lease, forwarded commands, append notices and gossip."""
