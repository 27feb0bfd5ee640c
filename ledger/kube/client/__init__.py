"""Requests to an API server over HTTP: reads, writes, credentials and events."""
