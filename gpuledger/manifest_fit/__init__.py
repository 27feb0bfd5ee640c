"""Fit of a manifest on cards, for the command, the service and its follower process."""
