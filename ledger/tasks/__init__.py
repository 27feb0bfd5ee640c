"""Asynchronous tasks: backoff after failures, periodic work, and yielding to the event loop."""
