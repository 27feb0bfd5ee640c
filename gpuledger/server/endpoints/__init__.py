"""Endpoints of the service that answer from the live ledger."""
