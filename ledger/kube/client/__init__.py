"""HTTP requests to an API server: reads, writes, credentials and events."""
