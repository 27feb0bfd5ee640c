"""The driver's own view of the node's cards: the memory of each pod, as `nvidia-smi` has it.

`python -m tests.e2e.real_node.machine.driver_view` answers each line of its input with one line:
bytes by the pod's uid and the card's uuid. It runs on the host, so that pids are those of the host.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Final

from vgpu_native.agent.pod_cgroups import ProcCgroups
from vgpu_native.nvml.nvml_library import NvmlLibrary

_MODULE: Final = "tests.e2e.real_node.machine.driver_view"
_TREE: Final = Path(__file__).parents[4]
MEBIBYTE: Final = 1024**2


class DriverView:
    """A process that asks NVML."""

    def __init__(self, machine: dict[str, str]) -> None:
        """Start it in the environment of a machine."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", _MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | machine | {"PYTHONPATH": str(_TREE)},
            text=True,
        )

    def memory(self) -> dict[tuple[str, str], int]:
        """Return the MiB that each pod, by its uid, has of each card."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        read: dict[str, int] = json.loads(self._process.stdout.readline())
        return {
            (uid, card): used // MEBIBYTE
            for name, used in read.items()
            for uid, card in [name.split(" ")]
        }

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()


def main() -> None:
    """Answer until the input ends."""
    nvml, cgroups = NvmlLibrary(), ProcCgroups()
    cards = [gpu.uuid for gpu in nvml.gpus()]
    for _ in sys.stdin:
        memory: Counter[str] = Counter()
        for card in cards:
            for process in nvml.processes(card):
                memory[f"{cgroups.pod_of(process.pid)} {card}"] += process.memory
        sys.stdout.write(json.dumps(memory) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
