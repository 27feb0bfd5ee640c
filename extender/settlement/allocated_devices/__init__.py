"""Cards that kube-scheduler allocates for resource claims: offers, shares and foreign overlap."""
