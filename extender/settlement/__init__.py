"""Settlement of cards: nodes and placed pods of the cluster become commands to the ledger.

The active replica settles them, beside quotas. Every replica follows the announcements of nodes.
"""
