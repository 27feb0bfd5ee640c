"""The log: the interface, its adapters, the record format, and the one writer that appends."""
