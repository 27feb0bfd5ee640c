"""Allocations: from Allocate to their container's start, and their removal."""
