"""Drift: whether the agent would report or evict a container that bypasses nothing.

The arithmetic is that of `vgpu_native/agent/bypass_detection.py`: the driver's bytes of all
processes of a pod, less the bytes that the library counts, may be the slack times the processes. A
greater difference in all readings of a minute is evicted.
"""

from __future__ import annotations

from gpu_check.bench import Bench
from gpu_check.outcome import Findings
from gpu_check.parts.memory import limited

SLACK_MIB = 512.0
"""`SLACK` of the agent, by process."""

SCENARIOS = ("context", "pieces", "arrays", "heaps", "pools", "free-async")


def drift(bench: Bench) -> Findings:
    """Compute the agent's difference at each step of ordinary programs."""
    findings = bench.begin()
    for scenario in SCENARIOS[:3] if bench.quick else SCENARIOS:
        walked = limited(bench, findings, ("steps", scenario, 100), 2048)
        if not walked.by_process:
            findings.notes.append(
                f"{scenario}: NVML lists no process of it, so the card's total counts"
            )
        worst = max(walked.steps, key=lambda step: step.used - step.counted)
        excess = worst.used - worst.counted
        findings.add(
            f"{scenario}: the most uncharged, at {worst.name}",
            excess,
            "MiB",
            None,
            SLACK_MIB,
            worst.result,
        )
    return findings
