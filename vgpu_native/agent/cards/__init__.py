"""The cards of the node: what it has, which are healthy, and how they are announced."""
