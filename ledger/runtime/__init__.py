"""The runtime floor: settings, certificates, serving, access, health, logs and metrics.

Each module owns one library or one concern of a process that runs for months. Nothing here knows
quotas.
"""
