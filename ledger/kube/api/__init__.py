"""Decoded Kubernetes objects, the ports to an API server, and its errors."""
