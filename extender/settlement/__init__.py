"""Settling: what the cluster says of nodes and placed pods becomes commands to the ledger.

The active replica does it, beside the settlement of quotas. Every replica knows what the nodes
announce.
"""
