"""The data of the ledger: accounts, cards, commands, events, denials and the state. No rules."""
