"""Certificates: an authority of its own, and TLS contexts that follow their files."""
