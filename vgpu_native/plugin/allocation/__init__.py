"""Allocations: from Allocate to the container that was meant, and their end."""
