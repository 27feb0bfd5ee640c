"""A real cluster on one machine: control plane, two nodes, names, Service addresses, volumes.

`RealCluster` runs inside the namespaces that `make e2e-install` enters. Its parts are the programs
of every cluster, except kube-proxy, cluster DNS and the provisioner, which `ClusterServices` is.
"""

import itertools
import json
import os
import shlex
import shutil
import ssl
import sys
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, Self

import aiohttp

from tests.e2e.harness.cluster import Cluster, Manifest
from tests.e2e.harness.controlplane import ADMIN
from tests.e2e.harness.kubectl import Kubectl
from tests.e2e.harness.processes import Child
from tests.e2e.install.rig import images, network, volumes
from tests.e2e.install.rig.api_server import RigControlPlane, node_user
from tests.e2e.install.rig.assets import RigAssets, rig_name
from tests.e2e.install.rig.namespaces import FOLDERS
from tests.e2e.install.rig.node import RigNode

NODES: Final = ("a", "b")
READY_SECONDS: Final = 60.0
HELM_SECONDS: Final = 300.0
CONNECTIONS: Final = 64
_TREE: Final = Path(__file__).parents[4]
_numbers: Final = itertools.count(1)


class RealCluster:
    """A cluster; logs and volumes are in `folder`, which remains, and all else vanishes."""

    def __init__(
        self,
        assets: RigAssets,
        folder: Path,
        *,
        nodes: Sequence[str] = NODES,
        machine: type[RigNode] = RigNode,
    ) -> None:
        """Take the names of the nodes, and what each of them is."""
        self._machine = machine
        self.folder = folder
        self.plane = RigControlPlane(assets.control_plane, folder / "control-plane", nodes)
        self.kubeconfig = self.plane.kubeconfig(ADMIN)
        self.kubectl = Kubectl(assets.control_plane, self.kubeconfig, folder)
        self._assets = assets
        self._disks = FOLDERS / rig_name() / str(next(_numbers))
        self._nodes = {name: self._node(name, index) for index, name in enumerate(nodes, 1)}
        self._children: list[Child] = []

    def __enter__(self) -> Self:
        """Start everything and return when all nodes are ready."""
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._write_report()
        self.stop()

    def stop(self) -> None:
        """End everything, as a power cut does."""
        for node in self._nodes.values():
            node.kill()
        while self._children:
            self._children.pop().kill()
        self.plane.stop()
        network.remove_bridge()
        shutil.rmtree(self._disks, ignore_errors=True)

    def node(self, name: str) -> RigNode:
        """Return a node."""
        return self._nodes[name]

    def helm(self, *arguments: str) -> str:
        """Run helm, which has to succeed; return its output."""
        return self.kubectl.type(shlex.join(["helm", *arguments]), within=HELM_SECONDS)

    def import_image(self, archive: Path) -> None:
        """Import an OCI archive on every node that runs."""
        nodes = [node for node in self._nodes.values() if node.runs]
        with ThreadPoolExecutor(len(nodes)) as pool:
            list(pool.map(lambda node: node.import_image(archive), nodes))

    def apply(self, *manifests: Manifest) -> str:
        """Apply manifests as an administrator does; return the output of kubectl."""
        listed = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
        text = json.dumps(listed)
        return self.kubectl.type(f"kubectl apply -f - <<'MANIFESTS'\n{text}\nMANIFESTS")

    def pods(self, namespace: str) -> list[Manifest]:
        """Return the pods of a namespace."""
        listed = json.loads(self.kubectl.type(f"kubectl -n {namespace} get pods -o json"))
        items: list[Manifest] = listed["items"]
        return items

    def exec(self, namespace: str, pod: str, *command: str) -> str:
        """Run a command in a pod's container, which has to succeed; return its output."""
        words = shlex.join(command)
        return self.kubectl.type(f"kubectl -n {namespace} exec {pod} -- {words}")

    def output(self, namespace: str, pod: str) -> str:
        """Return the output of a pod's container, once it has ended with status 0."""
        ended = "jsonpath={.status.containerStatuses[0].state.terminated}"
        typed = f"kubectl -n {namespace} wait pod/{pod} --for={ended} --timeout={READY_SECONDS:g}s"
        self.kubectl.type(typed, within=2 * READY_SECONDS)
        printed = self.kubectl.type(f"kubectl -n {namespace} logs {pod}")
        (container,) = self.kubectl.get(namespace, f"pod/{pod}")["status"]["containerStatuses"]
        status = container["state"]["terminated"]["exitCode"]
        assert status == 0, f"pod {namespace}/{pod} ended with {status}: {printed}"
        return printed

    @asynccontextmanager
    async def connected(self, user: str = ADMIN) -> AsyncIterator[Cluster]:
        """Return the API server as an administrator or a tenant sees it."""
        context = ssl.create_default_context(cafile=str(self.plane.ca))
        connector = aiohttp.TCPConnector(ssl=context, limit=CONNECTIONS)
        async with aiohttp.ClientSession(connector=connector) as session:
            yield Cluster(session, self.plane.url, self.plane.token(user))

    def _node(self, name: str, index: int) -> RigNode:
        return self._machine(
            name,
            index,
            assets=self._assets.node,
            disk=self._disks / name,
            logs=self.folder / "nodes" / name,
            cgroup=f"{rig_name()}/{name}",
            kubeconfig=self.plane.kubeconfig(node_user(name)),
            kubectl=self.kubectl,
        )

    def _start(self) -> None:
        self._disks.mkdir(parents=True)
        self.plane.folder.mkdir()
        network.make_bridge()
        self.plane.start()
        self._start_services()
        for node in self._nodes.values():
            node.start()
        archive = self._disks / "busybox.tar"
        images.write_busybox(self._assets.node / "busybox", archive)
        self.import_image(archive)
        self.apply(volumes.storage_class())
        self._wait_until_ready()

    def _start_services(self) -> None:
        hosts = self._disks / "hosts"
        hosts.mkdir()
        token = self.plane.token(ADMIN)
        disks = self.folder / "volumes"
        module = "tests.e2e.install.rig.cluster_services"
        arguments = [self.plane.url, token, str(hosts), str(disks)]
        self._run("cluster-services", [sys.executable, "-m", module, *arguments])
        self._run("dnsmasq", network.dns_server(hosts))

    def _run(self, name: str, command: list[str]) -> None:
        env = os.environ | {"PYTHONPATH": str(_TREE)}
        self._children.append(Child(name, command, self.folder / f"{name}.log", env))

    def _wait_until_ready(self) -> None:
        within = f"--timeout={READY_SECONDS:g}s"
        for name in self._nodes:
            self.kubectl.type(f"kubectl wait --for=create node/{name} {within}")
            self.kubectl.type(f"kubectl wait --for=condition=Ready node/{name} {within}")
        self.kubectl.type(f"kubectl wait --for=create serviceaccount/default {within}")

    def _write_report(self) -> None:
        """Write a list of all objects that explain a failure."""
        kinds = "nodes,pods,services,endpointslices,persistentvolumeclaims,events"
        _, printed = self.kubectl.attempt(f"kubectl get {kinds} -A -o wide; true")
        (self.folder / "report.txt").write_text(printed)
