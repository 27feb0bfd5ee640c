"""Offline questions about placement: what-if replays, and what would let a pod fit."""
