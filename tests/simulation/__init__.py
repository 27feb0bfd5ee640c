"""Simulation: real writers, webhooks and settlement, under faults that a seed decides.

`run.run` runs one seed, `campaign.campaign` many, and `campaign.explain` returns the shortest
script of one that fails. A seed always runs the same way, to the byte of its trace.
"""
