"""The log: the port, its adapters, the record format, and the one writer that appends."""
