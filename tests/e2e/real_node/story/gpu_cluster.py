"""A real cluster with one node with cards, and gpuledger installed on it by its chart."""

import json
import re
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import yaml

from gpuledger.demo.narration import Narrator
from tests.e2e.harness.cluster import Manifest
from tests.e2e.harness.controlplane import ADMIN
from tests.e2e.install.rig import images
from tests.e2e.install.rig.assets import RigAssets
from tests.e2e.install.rig.real_cluster import RealCluster
from tests.e2e.real_node.machine.driver_view import DriverView
from tests.e2e.real_node.machine.gpu_node import CARDS, GpuNode, runtime_class
from tests.e2e.real_node.story.api import Api, wait_for
from tests.e2e.real_node.story.voices import Voices

NODE: Final = "a"
NODE_PATH: Final = f"/api/v1/nodes/{NODE}"
CHART: Final = Path(__file__).parents[4] / "deploy" / "chart" / "gpuledger"
NAMESPACE: Final = "gpuledger"
AGENTS: Final = "gpuledger-nodes"
SLOTS: Final = 10
RESOURCE: Final = "nvidia.com/gpu"
ALLOCATABLE_SECONDS: Final = 60.0
VALUES: Final = (
    "cluster=here",
    "replicaCount=1",
    "scheduler.enabled=true",
    "scheduler.replicaCount=1",
    "agent.enabled=true",
    "agent.evict=true",
    "agent.regionFileSystems=32",
    f"agent.slots={SLOTS}",
    # All pods have to fit on a node of two cores.
    "resources.requests.cpu=50m",
    "nats.resources.requests.cpu=50m",
    "scheduler.resources.requests.cpu=50m",
    "scheduler.extenderResources.requests.cpu=50m",
)
ARGUMENTS: Final = ("--look=1",)
ALLOCATED: Final = "hami.io/vgpu-devices-allocated"
ENDED: Final = ("Succeeded", "Failed")


def memory_by_annotation(pod: Manifest) -> Counter[str]:
    """Return the MiB of each card that a pod was placed on."""
    memory: Counter[str] = Counter()
    text = pod["metadata"].get("annotations", {}).get(ALLOCATED, "")
    for device in text.replace(";", ":").split(":"):
        if "," in device:
            card, _, amount, _ = device.split(",")
            memory[card] += int(amount)
    return memory


class GpuCluster:
    """The cluster, its node, and the narrator of a story."""

    def __init__(self, cluster: RealCluster, rig: RigAssets, archives: Sequence[Path]) -> None:
        """Take a cluster that runs, and the images of the product."""
        self.cluster = cluster
        self.teller = Narrator()
        self.api = Api(cluster.plane.url, cluster.plane.token(ADMIN), cluster.plane.ca)
        self.form = "mounts"
        """How the agents answer the kubelet now: by mounts or by cdi."""

        self.driver = DriverView(self.node.machine)
        self.voices = Voices(self.node.logs)
        self._rig = rig
        self._archives = archives

    @property
    def node(self) -> GpuNode:
        """Return the node with the cards."""
        node = self.cluster.node(NODE)
        assert isinstance(node, GpuNode)
        return node

    def install(self) -> None:
        """Install the chart, and let the node have an agent."""
        with self.teller.step("Import the images, and install gpuledger with agent.enabled"):
            for archive in (*self._archives, self._scheduler()):
                self.cluster.import_image(archive)
            self.cluster.apply(runtime_class())
            self.helm("install")
        with self.teller.step(f"Let node {NODE} have an agent"):
            self.teller.command(f"kubectl label node {NODE} gpuledger.io/agent=on")
            self.cluster.kubectl.type(f"kubectl label node {NODE} gpuledger.io/agent=on")
            self.wait_allocatable()
            self.tell()
            self.teller.claim(f"the kubelet offers {CARDS * SLOTS} {RESOURCE}")

    def tell(self) -> None:
        """Print what the programs have reported since the last time."""
        self.teller.block("\n".join(self.voices.new_lines()))

    def helm(self, verb: str, *arguments: str) -> None:
        """Install or upgrade the release with these arguments of agents."""
        extra = json.dumps([*ARGUMENTS, *arguments])
        values = [*(f"--set={value}" for value in VALUES), f"--set-json=agent.extraArgs={extra}"]
        into = [f"--namespace={NAMESPACE}", "--create-namespace", "--wait", "--timeout=3m"]
        self.cluster.helm(verb, "gpuledger", str(CHART), *values, *into)

    def allocatable(self) -> int:
        """Return the slots that the kubelet offers."""
        status = self.api.must("GET", NODE_PATH)["status"]
        return int(status["allocatable"].get(RESOURCE, 0))

    def wait_allocatable(self, slots: int = CARDS * SLOTS) -> None:
        """Wait until the kubelet offers so many slots."""
        wait_for(
            self.allocatable,
            lambda seen: seen == slots,
            within=ALLOCATABLE_SECONDS,
            what=f"node {NODE} has {slots} {RESOURCE}",
        )

    def gpuledger(self, *words: str) -> Any:
        """Run a command of gpuledger in the service's container; return its JSON."""
        typed = ("gpuledger", *words, "-o", "json")
        printed = self.cluster.exec(NAMESPACE, "deploy/gpuledger", *typed)
        # Before and after it are notes of kubectl and of the command, from standard error.
        begin = re.search(r"^[\[{]", printed, re.MULTILINE)
        assert begin is not None, printed
        read, _ = json.JSONDecoder().raw_decode(printed, begin.start())
        return read

    def memory_by_annotations(self) -> Counter[str]:
        """Return the MiB of each card that pods of all namespaces have, ended ones left out."""
        pods = [
            pod for pod in self.api.items("/api/v1/pods") if pod["status"]["phase"] not in ENDED
        ]
        return sum(map(memory_by_annotation, pods), start=Counter())

    def use(self, form: str) -> None:
        """Let the agents answer by `mounts` or by `cdi`, by an upgrade where they do not yet."""
        if self.form == form:
            return
        with self.teller.step(f"Let the agents answer by {form}"):
            self.switch_agents(*(["--cdi"] if form == "cdi" else []))
            self.form = form
            self.tell()
            self.teller.claim("the new agent has registered again")

    def switch_agents(self, *arguments: str) -> None:
        """Give the agents other arguments, which restarts them."""
        before = self.agent_pod()["metadata"]["uid"]
        self.helm("upgrade", *arguments)
        wait_for(
            self.agent_pods,
            lambda pods: [before] != [pod["metadata"]["uid"] for pod in pods] and _are_ready(pods),
            within=ALLOCATABLE_SECONDS,
            what="the agent with the new arguments is ready",
        )
        self.wait_allocatable()

    def agent_pods(self) -> list[Manifest]:
        """Return the pods of the node's agent: one, and during an update two."""
        return self.api.items(f"/api/v1/namespaces/{AGENTS}/pods")

    def readiness(self) -> str:
        """Return `ready`, or why the agent is not."""
        try:
            self._ask_agent("/readyz")
        except (OSError, KeyError) as error:
            return f"{type(error).__name__}: {error}"
        return "ready"

    def containers(self) -> list[Manifest]:
        """Return the usage of containers, as the agent reports it."""
        reported: list[Manifest] = json.loads(self._ask_agent("/v1/containers"))["containers"]
        return reported

    def _ask_agent(self, path: str) -> str:
        address = self.agent_pod()["status"]["podIP"]
        with urllib.request.urlopen(f"http://{address}:9394{path}", timeout=5) as answer:
            return str(answer.read().decode())

    def agent_pod(self) -> Manifest:
        """Return the pod of the node's agent."""
        (pod,) = self.agent_pods()
        return pod

    def _scheduler(self) -> Path:
        """Return an archive of the image that the chart's scheduler has."""
        image = yaml.safe_load((CHART / "values.yaml").read_text())["scheduler"]["image"]
        version = self.api.must("GET", "/version")["gitVersion"]
        archive = self.cluster.folder / "kube-scheduler.tar"
        reference = f"{image['registry']}/{image['repository']}:{version}"
        images.write_program(self._rig.control_plane / "kube-scheduler", archive, reference)
        return archive


def _are_ready(pods: list[Manifest]) -> bool:
    states = [state for pod in pods for state in pod["status"].get("containerStatuses", ())]
    return len(pods) == 1 and bool(states) and all(state["ready"] for state in states)


@contextmanager
def gpu_cluster(rig: RigAssets, folder: Path) -> Iterator[GpuCluster]:
    """Run a cluster with gpuledger on it for a block."""
    with RealCluster(rig, folder, nodes=[NODE], machine=GpuNode) as cluster:
        made = GpuCluster(cluster, rig, images.product_archives())
        made.teller.opening("A pod with a card below a real kubelet.")
        made.teller.line(
            "Each `ok` was checked. Played are the card and its driver (by a stub), and"
        )
        made.teller.line("NVIDIA's container runtime, which mounts the driver; all else is real.")
        try:
            made.install()
            yield made
        finally:
            made.driver.close()
