"""The node agent: limits that follow the ledger, what containers use, and what the node has."""
