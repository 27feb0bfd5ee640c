"""`kubectl gpuledger`: the files that kubectl looks for, the name in texts, and completions."""

import subprocess
from pathlib import Path

import pytest
from support.harness.command_line import COMMAND, SECONDS, environment

PLUGIN = "kubectl-gpuledger"
COMPLETER = "kubectl_complete-gpuledger"


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    path: Path = COMMAND.with_name(program)
    return subprocess.run(
        [path, *arguments],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env=environment(),
        check=False,
    )


def test_the_plugin_is_the_command_under_its_own_name() -> None:
    assert run(PLUGIN, "usage", "--help").stdout.startswith("Usage: kubectl gpuledger usage")
    assert run("gpuledger", "usage", "--help").stdout.startswith("Usage: gpuledger usage")
    wrong = run(PLUGIN, "usage", "--at", "monday", "--store-dir", "none")
    assert (wrong.returncode, "neither a position" in wrong.stderr) == (2, True)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("hol",), ["holders", "holds"]),
        (("usage", "--serv"), ["--server"]),
        (("usage", "--by", ""), ["cluster", "namespace"]),
        (("fit", "-f", "x"), []),
    ],
)
def test_completions_are_followed_by_the_directive(
    words: tuple[str, ...], expected: list[str]
) -> None:
    assert run(COMPLETER, *words).stdout.splitlines() == [*expected, ":0"]
