"""The real kube-scheduler, with the configuration that the product ships."""

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml
from support.servers.ports import free_port

from tests.e2e.harness.cluster import Manifest
from tests.e2e.harness.processes import Child

PROGRAM: Final = "kube-scheduler"
READY_SECONDS: Final = 60.0
PROFILE: Final = "gpuledger-scheduler"
DEFAULT_PROFILE: Final = "default-scheduler"
BURST: Final = 2_000
"""Requests of the scheduler's client per second: the usual 50 would be what a test measures."""

BACKOFF_SECONDS_MAX: Final = 2
"""How long a pod that fits nowhere waits at most, so that tests do not."""

_KIND: Final = "KubeSchedulerConfiguration"
_SHIPPED: Final = Path(__file__).parents[4] / "deploy" / "scheduler"


class Extender(NamedTuple):
    """Where an extender is asked: HOST:PORT with the path of its verbs, and the CA it shows.

    `verbs` replaces fields of the shipped configuration, for an extender with other verbs.
    """

    address: str
    ca: Path
    path: str = "/extender"
    verbs: Mapping[str, str] = {}


def configuration() -> Manifest:
    """Return the KubeSchedulerConfiguration in the folder `deploy/scheduler`, wherever it is."""
    for path in sorted(_SHIPPED.glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            for part in _within(document):
                if part.get("kind") == _KIND:
                    return part
    raise AssertionError(f"no file of {_SHIPPED} has a {_KIND}")


def _within(document: Any) -> list[Manifest]:
    """Return a document, and the documents that it carries where it is a ConfigMap."""
    if not isinstance(document, dict):
        return []
    files = (document.get("data") or {}) if document.get("kind") == "ConfigMap" else {}
    return [document, *(yaml.safe_load(files[name]) for name in files if name.endswith(".yaml"))]


def adapted(
    shipped: Manifest, kubeconfig: Path, extender: Extender | None, profile: str
) -> Manifest:
    """Return the configuration with what an installation has to fill in, and a shorter back-off.

    Without an extender it is a scheduler as every cluster has one.
    """
    made = copy.deepcopy(shipped)
    made["clientConnection"] = {"kubeconfig": str(kubeconfig), "qps": BURST, "burst": BURST}
    made["leaderElection"] = {"leaderElect": False}
    made["podInitialBackoffSeconds"] = 1
    made["podMaxBackoffSeconds"] = BACKOFF_SECONDS_MAX
    made["profiles"][0]["schedulerName"] = profile
    if extender is None:
        del made["extenders"]
        return made
    asked = made["extenders"][0]
    asked["urlPrefix"] = f"https://{extender.address}{extender.path}"
    asked["enableHTTPS"] = True
    asked["tlsConfig"] = {"caFile": str(extender.ca)}
    asked.update(extender.verbs)
    return made


class Scheduler:
    """One kube-scheduler process for the pods of one profile."""

    def __init__(self, assets: Path, folder: Path, kubeconfig: Path) -> None:
        """Take the folder of the binaries, one to write to, and the scheduler's identity."""
        self._program = assets / PROGRAM
        self._folder = folder
        self._kubeconfig = kubeconfig
        self._child: Child | None = None
        folder.mkdir(parents=True, exist_ok=True)

    def start(self, extender: Extender | None, profile: str = PROFILE) -> None:
        """Start it, with or without an extender, and return when it is healthy."""
        made = adapted(configuration(), self._kubeconfig, extender, profile)
        file = self._folder / "configuration.json"
        file.write_text(json.dumps(made))
        port, certificates = free_port(), self._folder / "certs"
        command = [
            str(self._program),
            f"--config={file}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--cert-dir={certificates}",
        ]
        self._child = Child(PROGRAM, command, self._folder / f"{PROGRAM}.log")
        self._child.wait_healthy(
            f"https://127.0.0.1:{port}/healthz", certificates / f"{PROGRAM}.crt", READY_SECONDS
        )

    def stop(self) -> None:
        """End it, if it runs."""
        child, self._child = self._child, None
        if child is not None:
            child.stop()
