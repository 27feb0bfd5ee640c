"""Commands that read or change the ledger: their options, help and tables, one family each."""
