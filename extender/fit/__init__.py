"""Which cards of which nodes a pod fits on, and how good each node is."""
