"""The work of the commands that read: fit, explanations, quotas and what-if."""
