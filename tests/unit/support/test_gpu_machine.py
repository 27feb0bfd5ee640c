"""The played container runtime of a node with cards, and the search of its processes."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.install.rig import process_tree
from tests.e2e.real_node.machine import nvidia_runtime

CARDS = ["GPU-a", "GPU-b"]


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, Any]:
    """Return the settings of a runtime of two cards."""
    return {
        "libraries": "/driver",
        "nodes": "/nodes",
        "state": "/state",
        "log": str(tmp_path / "log"),
        "cards": CARDS,
        "machine": {"VGPU_STUB_DEVICES": "2"},
    }


def prepared(folder: Path, settings: dict[str, Any], *environment: str) -> dict[str, Any]:
    """Return the specification of a container with this environment, once it is prepared."""
    file = folder / "config.json"
    file.write_text(json.dumps({"process": {"env": list(environment)}, "mounts": []}))
    nvidia_runtime.prepare(file, settings)
    spec: dict[str, Any] = json.loads(file.read_text())
    return spec


def places(spec: dict[str, Any]) -> list[str]:
    return [mount["destination"].rpartition("/")[2] for mount in spec["mounts"]]


@pytest.mark.parametrize("environment", [(), ("NVIDIA_VISIBLE_DEVICES=void",)])
def test_runtime_adds_nothing_when_no_card_is_named(
    tmp_path: Path, settings: dict[str, Any], environment: tuple[str, ...]
) -> None:
    spec = prepared(tmp_path, settings, *environment)
    assert (spec["mounts"], spec["process"]["env"]) == ([], list(environment))


@pytest.mark.parametrize(
    ("visible", "nodes"),
    [("GPU-b", ["nvidia1"]), ("0", ["nvidia0"]), ("all", ["nvidia0", "nvidia1"]), ("none", [])],
)
def test_runtime_adds_the_driver_and_the_nodes_of_the_cards(
    tmp_path: Path, settings: dict[str, Any], visible: str, nodes: list[str]
) -> None:
    spec = prepared(tmp_path, settings, f"NVIDIA_VISIBLE_DEVICES={visible}")
    assert places(spec) == ["libcuda.so.1", "libnvidia-ml.so.1", *nodes, "state"]
    assert "VGPU_STUB_NODES=/dev" in spec["process"]["env"]


def test_runtime_adds_only_the_libraries_of_the_capabilities(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    named = ("NVIDIA_VISIBLE_DEVICES=none", "NVIDIA_DRIVER_CAPABILITIES=utility")
    assert places(prepared(tmp_path, settings, *named)) == ["libnvidia-ml.so.1", "state"]


def test_runtime_fails_for_an_unknown_card(tmp_path: Path, settings: dict[str, Any]) -> None:
    with pytest.raises(SystemExit, match="GPU-c: unknown device"):
        prepared(tmp_path, settings, "NVIDIA_VISIBLE_DEVICES=GPU-a,GPU-c")


def test_processes_are_searched_below_one_and_by_their_words() -> None:
    program = "import sys; print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        ["sh", "-c", f'{sys.executable} -c "{program}"; true'],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as shell:
        assert shell.stdout is not None
        shell.stdout.readline()
        [child] = process_tree.below(shell.pid, ["-c", program])
        assert child != shell.pid
        assert process_tree.below(shell.pid, ["-c", "another"]) == []
        assert process_tree.below(child, ["-c", program]) == [child]
        assert child in process_tree.below(os.getpid(), ["-c", program])
        shell.communicate()
