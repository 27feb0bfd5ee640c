"""What the reading commands compute: usage, cards, fit, explanations and what-if."""
