"""Requests about placements: the preferences of pods, and the amounts of placed pods."""
