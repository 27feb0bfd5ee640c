"""Decide about cards: those of a node, and the pods that are placed on them."""
