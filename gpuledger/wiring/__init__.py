"""Wiring: parts of the service, the agent and the commands, made from settings."""
