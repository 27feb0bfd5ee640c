"""Decide: turn a command into events or a denial, from the state alone.

`ledger.core.evolve` holds what an event then changes: charges, the used amounts of quotas when
labels change, and placements.
"""
