"""Removal: what an installation has written into a cluster, and its removal."""
