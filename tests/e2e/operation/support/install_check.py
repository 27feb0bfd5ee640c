"""`gpuledger check` as an operator types it: its exit status and its findings."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.e2e.harness.service import COMMAND, COMMAND_SECONDS

FAILED: Final = "failed"
NOT_ASKED: Final = "not asked"


class CheckedInstall(NamedTuple):
    """The exit status, the findings by the name of their check, and standard error."""

    status: int
    findings: dict[str, dict[str, str]]
    complaint: str

    def those(self, outcome: str) -> list[str]:
        """Return the checks with this outcome."""
        return [name for name, finding in self.findings.items() if finding["outcome"] == outcome]


async def check(kubeconfig: Path, *options: str) -> CheckedInstall:
    """Run the command."""
    status, output, complaint = await typed("check", f"--kubeconfig={kubeconfig}", *options)
    findings: list[dict[str, Any]] = json.loads(output) if output else []
    return CheckedInstall(status, {finding["check"]: finding for finding in findings}, complaint)


async def typed(*arguments: str) -> tuple[int, str, str]:
    """Run a command of `gpuledger` with output as JSON; return status, output, standard error."""
    process = await asyncio.create_subprocess_exec(
        COMMAND,
        *arguments,
        "--output=json",
        env=dict(os.environ),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(COMMAND_SECONDS):
            output, complaint = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        raise AssertionError(f"gpuledger {' '.join(arguments)} did not end") from None
    assert process.returncode is not None, "a process that was waited for has a status"
    return process.returncode, output.decode(), complaint.decode()
