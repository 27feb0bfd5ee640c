"""Pages of the service."""
