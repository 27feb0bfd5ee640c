"""Settings: their schema, their sources, and the texts that document them."""
