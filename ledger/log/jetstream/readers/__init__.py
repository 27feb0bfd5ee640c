"""Readers of a JetStream stream: by push, by pull, and by single requests."""
