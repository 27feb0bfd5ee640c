"""Commands that read or change the ledger, one family a file."""
