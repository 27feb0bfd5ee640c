"""The read side: what the log amounts to, in SQLite, and every answer that is read from it.

Nothing here decides anything. Every table can be deleted and is rebuilt from the log, to the same
digest.
"""
