"""The read side: a SQLite projection of the log, and all queries on it.

It makes no decisions. Every table can be deleted and rebuilt from the log with the same digest.
"""
