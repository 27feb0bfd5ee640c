"""The runtime of a process: settings, certificates, HTTP server, access, health, logs, metrics.

Each module owns one library or one concern of a process that runs for months. None depends on
quotas.
"""
