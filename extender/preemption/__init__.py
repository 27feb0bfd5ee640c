"""Preemption: victims, eviction plans and claims on the cards they leave."""
