"""Deliberate defects: each is planted, and the checker has to notice it."""
