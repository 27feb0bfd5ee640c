"""The verbs filter, prioritize and preempt of kube-scheduler; `extender.bind` has the verb bind."""
