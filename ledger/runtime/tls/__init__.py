"""TLS: the service's own CA, and contexts that reload changed files."""
