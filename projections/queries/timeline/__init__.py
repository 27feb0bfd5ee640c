"""Queries about a stretch of the log: usage over time, events on a quota, and single records."""
