"""Pods behind the scheduling gate: their queue, its opening, and events about the wait."""
