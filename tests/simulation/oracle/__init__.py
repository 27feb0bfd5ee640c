"""Independent accounts of quotas and cards, and the checker that compares the ledger with them."""
