"""The chart's scheduler and extender on real nodes: pods are placed on cards, run, and wait.

The cards of node a are announced as a device plugin announces them. No program of the node hands
them out, because the machine has none.
"""

import json
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.e2e.harness.cluster import Manifest
from tests.e2e.install.rig import images
from tests.e2e.install.rig.assets import RigAssets
from tests.e2e.install.rig.real_cluster import RealCluster
from tests.e2e.install.story.timeline import Timeline
from tests.e2e.scheduling.support import nodes
from tests.e2e.scheduling.support.pod_shapes import container, pod

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.install,
    pytest.mark.long,
    pytest.mark.timeout(600),
]

CHART: Final = Path(__file__).parents[3] / "deploy" / "chart" / "gpuledger"
TEAM: Final = "team-a"
CARDS: Final = nodes.Shape(cards=2, memory=10_000)
PROFILE: Final = "gpuledger-scheduler"
HALF: Final = 6_000
"""MiB of a pod, of which only one fits on a card."""

WITHIN: Final = "--timeout=60s"


@pytest.fixture
def cluster(
    real_cluster: RealCluster, rig: RigAssets, product_images: list[Path], tmp_path: Path
) -> RealCluster:
    """Import the images, that of the cluster's kube-scheduler too, and announce cards on node a."""
    image = yaml.safe_load((CHART / "values.yaml").read_text())["scheduler"]["image"]
    version = json.loads(real_cluster.kubectl.type("kubectl version -o json"))["serverVersion"]
    scheduler = tmp_path / "kube-scheduler.tar"
    reference = f"{image['registry']}/{image['repository']}:{version['gitVersion']}"
    images.write_program(rig.control_plane / "kube-scheduler", scheduler, reference)
    for archive in (*product_images, scheduler):
        real_cluster.import_image(archive)
    announced = nodes.node("a", CARDS)["metadata"]["annotations"]
    capacity = {"capacity": {"nvidia.com/gpu": str(CARDS.cards * CARDS.slots)}}
    metadata = json.dumps({"metadata": {"annotations": announced}})
    real_cluster.kubectl.type(
        f"kubectl patch node a --type=merge --patch='{metadata}'\n"
        "kubectl patch node a --subresource=status --type=merge"
        f" --patch='{json.dumps({'status': capacity})}'\n"
        f"kubectl create namespace {TEAM}"
    )
    return real_cluster


def asking(name: str) -> Manifest:
    """Return a pod of the scheduler that needs more than half of a card."""
    main = container(cards=1, memory=HALF) | {"image": images.BUSYBOX}
    made = pod(name, main, profile=PROFILE)
    made["metadata"]["namespace"] = TEAM
    return made


def test_pods_are_placed_on_cards_run_and_wait_for_room(cluster: RealCluster) -> None:
    timeline = Timeline()
    given = ("--set=cluster=east-1", "--set=scheduler.enabled=true", "--set=agent.enabled=true")
    into = ("--namespace=gpuledger", "--create-namespace", "--wait", "--timeout=4m")
    with timeline.step("helm install with scheduler.enabled and agent.enabled"):
        cluster.helm("install", "gpuledger", str(CHART), *given, *into)
    with timeline.step("helm test: the service settles, though extenders run beside it"):
        cluster.helm("test", "gpuledger", "--namespace=gpuledger")
    with timeline.step("two pods run on the two cards of node a"):
        cluster.apply(asking("first"), asking("second"))
        cluster.kubectl.type(f"kubectl -n {TEAM} wait --for=condition=Ready pod --all {WITHIN}")
    running = cluster.pods(TEAM)
    assert {made["spec"]["nodeName"] for made in running} == {"a"}
    assert {_card(made) for made in running} == set(nodes.uuids("a", CARDS))
    with timeline.step("a third pod waits, and its event has the reason"):
        cluster.apply(asking("third"))
        reason = _event(cluster, "third", "FailedScheduling")
    timeline.line(reason)
    assert "CardInsufficientMemory" in reason, reason
    with timeline.step("it runs once another has ended"):
        cluster.kubectl.type(
            f"kubectl -n {TEAM} delete pod first --wait\n"
            f"kubectl -n {TEAM} wait --for=condition=Ready pod/third {WITHIN}"
        )
    with timeline.step("the ledger has both pods on their cards"):
        typed = ("gpuledger", "cards", "a", "--pods", "-o", "json")
        printed = cluster.exec("gpuledger", "deploy/gpuledger", *typed)
    assert {"second", "third"} == {name for name in ("first", "second", "third") if name in printed}
    with timeline.step("helm uninstall"):
        cluster.helm("uninstall", "gpuledger", "--namespace=gpuledger", "--wait", "--timeout=4m")


def _card(made: Manifest) -> str:
    """Return the card on which a pod was placed."""
    annotations = made["metadata"]["annotations"]
    (card,) = [
        uuid
        for uuid in nodes.uuids("a", CARDS)
        if uuid in annotations.get("hami.io/vgpu-devices-allocated", "")
    ]
    return card


def _event(cluster: RealCluster, name: str, reason: str) -> str:
    """Return the message of a pod's event, once there is one."""
    selected = f"--field-selector=involvedObject.name={name},reason={reason}"
    for _ in range(60):
        printed = cluster.kubectl.type(f"kubectl -n {TEAM} get events {selected} -o json")
        for event in json.loads(printed)["items"]:
            return str(event["message"])
        cluster.kubectl.type("sleep 0.5")
    raise AssertionError(f"pod {name} has no event {reason}")
