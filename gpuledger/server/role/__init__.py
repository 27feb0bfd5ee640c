"""The role of a replica: which replicas the Service of the webhooks selects."""
