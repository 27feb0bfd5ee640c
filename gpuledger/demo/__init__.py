"""The demo: the life of a ledger from the first quota to an audit, with a crash in the middle.

It uses the product as a user does: the service is a process of its own, reviews travel over
HTTPS as an API server sends them, everything else is a command. It keeps its own books of what it
was answered, and everything that it claims is checked against them.
"""
