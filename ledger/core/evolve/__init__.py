"""Evolve: apply recorded events to the state. Replay runs this code and nothing else.

The amounts that an event changes are worked out here, not in `ledger.core.decide`, because a replay
must come to the same amounts.
"""
