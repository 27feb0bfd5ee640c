"""The simulated world: real writers, webhooks and settlement among seeded misfortune.

`running.run` runs one seed, `campaigns.campaign` many, and `campaigns.explain` tells the shortest
story of one that fails. A seed always runs the same way, to the byte of its trace.
"""
