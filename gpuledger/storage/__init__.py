"""Stores: open a log, project, rebuild, back up, audit and read past states."""
