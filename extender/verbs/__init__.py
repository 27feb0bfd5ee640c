"""The verbs of kube-scheduler: filter, prioritize, bind and preempt."""
