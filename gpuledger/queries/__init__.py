"""The queries of the commands that read: usage, cards, fit, explanations and what-if."""
