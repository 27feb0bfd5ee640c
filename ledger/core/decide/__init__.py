"""Turn a command into events or a denial, from the state alone."""
