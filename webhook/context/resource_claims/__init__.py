"""Resource claims: the templates, classes, slices and claims of a cluster, for its reviews."""
