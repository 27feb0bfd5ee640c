"""kwok plays the kubelets of all nodes: pods run at once, and those of Jobs end by themselves."""

from pathlib import Path
from typing import Final

from support.servers.ports import free_port

from tests.e2e.harness.processes import Child

PROGRAM: Final = "kwok"
STAGES: Final = Path(__file__).with_name("stages.yaml")
LEASE_SECONDS: Final = 40


def start(assets: Path, folder: Path, kubeconfig: Path) -> Child:
    """Start kwok for every node of a cluster; the caller ends it."""
    command = [
        str(assets / PROGRAM),
        f"--kubeconfig={kubeconfig}",
        f"--config={STAGES}",
        "--manage-all-nodes=true",
        f"--node-lease-duration-seconds={LEASE_SECONDS}",
        f"--server-address=127.0.0.1:{free_port()}",
    ]
    return Child(PROGRAM, command, folder / f"{PROGRAM}.log")
