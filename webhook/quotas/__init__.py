"""Quota accounts: limits read from quota objects, and usage written to their status."""
