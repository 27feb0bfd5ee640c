"""Limits of ResourceQuota and UniverseResourceQuota objects as amounts."""
