"""The scheduler extender: which nodes a pod fits on, how well, and on which cards it runs."""
