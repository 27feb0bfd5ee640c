"""Pods of a tenant, and the program in them, which the tests talk to."""

import json
import socket
import time
from typing import Any, Final, Self

from tests.e2e.harness.cluster import Manifest
from tests.e2e.install.rig.images import SERVICE
from tests.e2e.node.chain.container import PROGRAM, ProgramAnswer

PORT: Final = 7000
TALK_SECONDS: Final = 30.0
PROFILE: Final = "gpuledger-scheduler"
_PAUSE_SECONDS: Final = 0.05

# The program reads its commands from the first connection, and ends with it.
_SERVE: Final = """
import socket, sys
with socket.create_server(("", int(sys.argv[2]))) as listener:
    connection, _ = listener.accept()
sys.stdin, sys.stdout = connection.makefile("r"), connection.makefile("w")
exec(compile(sys.argv[1], "program.py", "exec"))
"""
SERVE: Final = ["python3", "-I", "-S", "-c", _SERVE, PROGRAM.read_text(), str(PORT)]

# A loader that reads another file than /etc/ld.so.preload: no limit of the library applies.
_WITHOUT_PRELOAD: Final = """
import os, sys
loader = open("/lib64/ld-linux-x86-64.so.2", "rb").read()
own = "/tmp/loader"
with open(own, "wb") as file:
    file.write(loader.replace(b"/etc/ld.so.preload", b"/etc/ld.so.prelost"))
os.chmod(own, 0o755)
os.execv(own, [own, "/usr/bin/python3", *sys.argv[1:]])
"""
BYPASS: Final = ["python3", "-I", "-S", "-c", _WITHOUT_PRELOAD, *SERVE[1:]]


def tenant_pod(
    name: str,
    *,
    cards: int = 1,
    memory: int = 1_000,
    command: list[str] = SERVE,
    environment: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    **spec: Any,
) -> Manifest:
    """Return a pod that asks for cards with so many MiB of each."""
    limits = {"nvidia.com/gpu": str(cards), "nvidia.com/gpumem": str(memory)}
    main = {
        "name": "main",
        "image": SERVICE,
        "imagePullPolicy": "Never",
        "command": command,
        "env": [{"name": key, "value": value} for key, value in (environment or {}).items()],
        "resources": {"limits": limits},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations or {}},
        "spec": {
            "schedulerName": PROFILE,
            "runtimeClassName": "nvidia",
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
            "containers": [main],
            **spec,
        },
    }


class PodProgram:
    """The program in a pod, by its connection."""

    def __init__(self, address: str) -> None:
        """Connect to the pod's address, and wait for the program's first answer."""
        self._connection = _connected(address)
        self._lines = self._connection.makefile("r")
        self.begun = self._answer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def do(self, *words: object) -> ProgramAnswer:
        """Let the program do something, and return its answer."""
        self._connection.sendall((" ".join(map(str, words)) + "\n").encode())
        return self._answer()

    def close(self) -> None:
        """Hang up, which ends the program."""
        self._lines.close()
        self._connection.close()

    def _answer(self) -> ProgramAnswer:
        line = self._lines.readline()
        assert line, "the program has ended"
        return ProgramAnswer(**json.loads(line))


def _connected(address: str) -> socket.socket:
    deadline = time.monotonic() + TALK_SECONDS
    while True:
        try:
            return socket.create_connection((address, PORT), timeout=TALK_SECONDS)
        except OSError:
            assert time.monotonic() < deadline, f"nothing listens at {address}:{PORT}"
            time.sleep(_PAUSE_SECONDS)
