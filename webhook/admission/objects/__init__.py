"""Admission of each type of object: pods, workloads, scales, quotas and policies."""
