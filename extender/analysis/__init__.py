"""Offline questions about placement: what-if replays, relaxations and draining."""
