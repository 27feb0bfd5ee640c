"""A node with cards: the stub driver on its disk, and a container runtime that mounts it.

The cards are one file, which every process with the driver maps. Their memory is free again after
a power cut.
"""

import json
import shutil
from pathlib import Path
from typing import Any, Final

from support.harness.native_library import built

from tests.e2e.install.rig.node import RigNode

CARDS: Final = 2
MEMORY_MIB: Final = 10_000
UUIDS: Final = tuple(
    f"GPU-00000000-0000-0000-0000-0000000000{number:02x}" for number in range(CARDS)
)
RUNTIME: Final = "nvidia"
"""The name of the container runtime, and of the RuntimeClass."""

LIBRARIES: Final = ("libcuda.so.1", "libnvidia-ml.so.1")
_HOME: Final = "/usr/local/nvidia"
_ON_DISK: Final = "local/nvidia"
_STATE: Final = "/run/nvidia-stub/state"
_LOG: Final = "nvidia-runtime.log"
_SIZE: Final = {"VGPU_STUB_DEVICES": str(CARDS), "VGPU_STUB_MEMORY": f"{MEMORY_MIB}m"}
_PROGRAM: Final = Path(__file__).with_name("nvidia_runtime.py")


def runtime_class() -> dict[str, Any]:
    """Return the RuntimeClass of pods with cards, which a cluster's administrator makes."""
    return {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": RUNTIME},
        "handler": RUNTIME,
    }


class GpuNode(RigNode):
    """A node with the driver and NVIDIA's container runtime, as far as both are played."""

    # At 4 the kubelet logs the calls of device plugins.
    kubelet_verbosity = 4

    @property
    def machine(self) -> dict[str, str]:
        """Return the environment in which a process of the host sees the cards."""
        return {
            "LD_LIBRARY_PATH": str(self.disk / _ON_DISK),
            "VGPU_STUB_STATE": str(self.disk / _STATE.removeprefix("/")),
            **_SIZE,
        }

    def given(self) -> list[dict[str, str]]:
        """Return the containers that the runtime made, with the cards that it gave each."""
        log = self.logs / _LOG
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    def _runtimes(self) -> dict[str, Path]:
        return {RUNTIME: Path(_HOME) / "nvidia-container-runtime"}

    def _write_configuration(self) -> None:
        super()._write_configuration()
        kubelet = self.disk / "kubelet.json"
        configured = json.loads(kubelet.read_text())
        # An agent that is killed again and again starts again at once.
        configured["crashLoopBackOff"] = {"maxContainerRestartPeriod": "1s"}
        kubelet.write_text(json.dumps(configured))
        home = self.disk / _ON_DISK
        (home / "nodes").mkdir(parents=True, exist_ok=True)
        for library in LIBRARIES:
            shutil.copy(built() / "stub" / library, home)
        for number in range(CARDS):
            _touch(home / "nodes" / f"nvidia{number}")
        _touch(self.disk / _STATE.removeprefix("/"))
        program = home / "nvidia-container-runtime"
        shutil.copy(_PROGRAM, program)
        program.chmod(0o755)
        settings = {
            "runc": str(self._assets / "runc"),
            "libraries": _HOME,
            "nodes": f"{_HOME}/nodes",
            "state": _STATE,
            "log": f"/var/log/{_LOG}",
            "cards": UUIDS,
            "machine": _SIZE,
        }
        (home / "runtime.json").write_text(json.dumps(settings))


def _touch(path: Path) -> None:
    """Make a file that every user may write, as the driver's device nodes are."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    path.chmod(0o666)
