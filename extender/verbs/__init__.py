"""The verbs filter, select, prioritize and preempt; `extender.bind` has the verb bind."""
