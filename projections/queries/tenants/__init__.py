"""Queries about one namespace: its holders by root, its room, and how long its holders lasted."""
