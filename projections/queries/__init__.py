"""Queries: each takes a view and parameters, and returns rows."""
