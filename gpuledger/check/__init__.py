"""Check: questions to the API server and to the replicas of an installation, and their findings."""
