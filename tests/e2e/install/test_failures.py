"""Failures of an installed release under load: a log server killed, a node drained, a node lost.

Three nodes have two replicas of the service and three log servers. The load comes from outside. As
every request of it fits, each refusal is counted as an effect of the failure. The Service of the
webhooks has one of both replicas, which is the one that is drained, killed and lost.

A log server whose pod is killed gets SIGTERM, and hands its streams over to another leader. A lost
node's followers elect one, which takes 5 to 8 s.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from ledger.kube.client.pod_role import LABEL, REVIEWER
from tests.e2e.install.rig.assets import RigAssets
from tests.e2e.install.rig.real_cluster import RealCluster
from tests.e2e.install.story.ledger_agreement import InstalledLedger, assert_agreement
from tests.e2e.install.story.load import Load
from tests.e2e.install.story.timeline import Timeline

pytestmark = [pytest.mark.e2e, pytest.mark.install, pytest.mark.timeout(420)]

CHART: Final = Path(__file__).parents[3] / "deploy" / "chart" / "gpuledger"
SPACE: Final = "gpuledger"
VALUES: Final = (
    "cluster=east-1",
    "nats.mode=cluster",
    "nats.resources.requests.cpu=100m",
    "resources.requests.cpu=100m",
    # The attempts of a lost replica are settled after a minute otherwise.
    "settings.settle_seconds=15",
)
RATE: Final = 10.0
STEADY_SECONDS: Final = 1.0
REFUSED_SECONDS_MAX: Final = 5.0
"""The time after a SIGKILL or a power cut in which requests are sent that are refused."""

ELECTED_SECONDS_MAX: Final = 10.0
"""The same for requests that a replica answers, because its log has no leader."""

DENIED: Final = "denied the request"
"""Part of the message of a request that a replica answered."""

HANDED_OVER_SECONDS: Final = 60.0
"""The time until one replica answers alone again."""

SHOWN_CHARACTERS: Final = 120
WITHIN: Final = "--timeout=100s"


@pytest.fixture
def three_nodes(
    rig: RigAssets, product_images: list[Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RealCluster]:
    """Run a cluster of three nodes with the images."""
    with RealCluster(rig, tmp_path_factory.mktemp("failures"), nodes=("a", "b", "c")) as cluster:
        for archive in product_images:
            cluster.import_image(archive)
        yield cluster


class Failures:
    """The failures of a release, and the load during them."""

    def __init__(self, cluster: RealCluster) -> None:
        self.timeline = Timeline()
        self.cluster = cluster
        self.load = Load(cluster, RATE)

    def install(self) -> None:
        """Install the release."""
        with self.timeline.step("helm install with three log servers on three nodes"):
            sets = [f"--set={value}" for value in VALUES]
            options = (f"--namespace={SPACE}", "--create-namespace", "--wait", *sets)
            self.cluster.helm("install", "gpuledger", str(CHART), *options)

    def kill_log_servers(self) -> None:
        """Kill one log server after the other, so that also the leader is killed."""
        for number in range(3):
            name = f"gpuledger-nats-{number}"
            with self.timeline.step(f"pod {name} is killed and comes back"):
                self._type(f"delete pod {name} --force --grace-period=0")
                self._type(f"wait --for=create pod/{name} {WITHIN}")
                self._type(f"wait --for=condition=Ready pod/{name} {WITHIN}")
            self._steady()

    def drain(self, node: str) -> None:
        """Drain a node, and let it take pods again."""
        with self.timeline.step(f"node {node} is drained"):
            self.cluster.node(node).drain()
        self._steady()
        with self.timeline.step(f"node {node} takes pods again, and all are ready"):
            self.cluster.node(node).uncordon()
            self._ready()
        self._steady()

    def kill_owner(self) -> None:
        """Kill the process of the replica that answers alone; the kubelet starts another one."""
        node = self.node_of_owner()
        at = self.load.elapsed
        with self.timeline.step(f"the replica on node {node} gets SIGKILL, and another takes over"):
            self.cluster.node(node).end("gpuledger", "serve")
            time.sleep(REFUSED_SECONDS_MAX)
        self._steady()
        self._refused_in_time(at)

    def lose(self, node: str) -> None:
        """Cut the power of a node until it is lost, and let it boot."""
        at = self.load.elapsed
        with self.timeline.step(f"node {node} has a power cut, and is lost"):
            self.cluster.node(node).kill()
            self.cluster.kubectl.type(
                f"kubectl wait --for=condition=Ready=Unknown node/{node} {WITHIN}", within=120
            )
        self._steady()
        with self.timeline.step(f"node {node} boots, and all pods are ready"):
            self.cluster.node(node).start()
            self._ready()
        self._steady()
        self._refused_in_time(at)

    def node_of_owner(self) -> str:
        """Return the node of the replica that answers alone, once there is one."""
        deadline = time.monotonic() + HANDED_OVER_SECONDS
        while len(nodes := self._nodes_of_reviewers()) != 1:
            assert time.monotonic() < deadline, f"replicas on {nodes} answer reviews"
            time.sleep(STEADY_SECONDS)
        return nodes[0]

    def _nodes_of_reviewers(self) -> list[str]:
        listed = self.cluster.kubectl.get(SPACE, f"pods --selector={LABEL}={REVIEWER}")
        return [
            str(pod["spec"]["nodeName"])
            for pod in listed["items"]
            if "deletionTimestamp" not in pod["metadata"]
        ]

    def report(self) -> None:
        """Print the counts until now."""
        self.timeline.line(self.load.summary())

    def _ready(self) -> None:
        self._type(f"rollout status statefulset/gpuledger-nats {WITHIN}")
        self._type(f"rollout status deployment/gpuledger {WITHIN}")

    def _steady(self) -> None:
        time.sleep(STEADY_SECONDS)
        self.load.answered()
        self.report()

    def _refused_in_time(self, at: float) -> None:
        """Print and forget the refusals; the requests were sent soon after the failure, or waited
        for their answers then."""
        refused = sorted(self.load.refusals, key=lambda refusal: refusal.at)
        self.load.refusals.clear()
        for refusal in refused:
            self.timeline.line(
                f"refused: sent {refusal.at - at:.1f} s after it, answered {refusal.took:.1f} s"
                f" later, {refusal.message[-SHOWN_CHARACTERS:]}"
            )
        assert all(refusal.at + refusal.took >= at for refusal in refused), refused
        for refusal in refused:
            bound = ELECTED_SECONDS_MAX if DENIED in refusal.message else REFUSED_SECONDS_MAX
            assert refusal.at - at <= bound, refusal

    def _type(self, command: str) -> None:
        self.cluster.kubectl.type(f"kubectl -n {SPACE} {command}", within=120)


async def test_failures_of_pods_and_nodes_lose_no_decision(three_nodes: RealCluster) -> None:
    failures = Failures(three_nodes)
    failures.install()
    with failures.load.running():
        failures.kill_log_servers()
        failures.drain(failures.node_of_owner())
        assert failures.load.refusals == []
        failures.lose(failures.node_of_owner())
        failures.kill_owner()
    with failures.timeline.step("ledger and cluster agree"):
        ledger = InstalledLedger(three_nodes, namespace=SPACE)
        await assert_agreement(three_nodes, ledger, failures.load.namespace, name="east-1")
