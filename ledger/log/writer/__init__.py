"""The writer: a queue of commands, group commit, optimistic appends and their recovery."""
