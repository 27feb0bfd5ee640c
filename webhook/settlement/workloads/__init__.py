"""Settlement of workload objects: one reconciler for each kind that the cluster serves."""
