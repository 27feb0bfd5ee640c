"""Harness of the benchmarks: fresh processes, results, a control plane, a service."""
