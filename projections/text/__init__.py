"""Events, cards and selectors as text."""
