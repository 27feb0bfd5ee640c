"""The demo: the life of a ledger from the first quota to an audit, with a crash in the middle.

It uses the product as a user does: the service is a separate process, reviews are sent over HTTPS
as by an API server, and all other steps are commands. The demo records all answers, and checks each
of its claims against them.
"""
