"""Settlement: reconcile the ledger with the objects that an API server has stored."""
