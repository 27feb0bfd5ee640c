"""The node agent: keeps limits equal to the ledger, measures usage, and announces cards."""
