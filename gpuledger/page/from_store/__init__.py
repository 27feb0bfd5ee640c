"""The pages over a store or a backup, without a service."""
