"""The log on NATS JetStream: connection, streams, appends, consumers and monitoring."""
