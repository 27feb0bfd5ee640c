"""The work of the commands that write: quotas, resizes and imports of HAMi's placements."""
