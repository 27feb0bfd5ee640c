"""Totals for an overview: denials by reason, cards by use, shared quotas by cluster."""
