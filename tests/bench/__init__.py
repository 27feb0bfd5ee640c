"""Measurements of the whole and of its parts, each with a goal. `python -m tests.bench` runs them.

Machines are noisy, so that nothing here is a bare number: what can be is compared with a baseline
measured in the same run, and every measurement has a process of its own.
"""
