"""Bind a pod: place it through the ledger, lock the node, write the Binding."""
