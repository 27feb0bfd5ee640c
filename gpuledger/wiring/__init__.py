"""Parts of the service made from its settings."""
