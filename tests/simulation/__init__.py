"""The simulated world: real writers, webhooks and settlement among seeded misfortune.

`run.run` runs one seed, `campaign.campaign` many, and `campaign.explain` returns the shortest
script of one that fails. A seed always runs the same way, to the byte of its trace.
"""
