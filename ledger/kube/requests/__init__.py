"""Requests of pods: device requests, amounts, traits and placement preferences."""
