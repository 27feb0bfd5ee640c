"""The grid of nodes and cards: which cards it shows, and their bars."""
