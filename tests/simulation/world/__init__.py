"""The simulated world: clusters, replicas and extenders."""
