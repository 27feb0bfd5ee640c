"""Settlement of resource claims: charged with their pod, or each at its own key."""
