"""`helm test` and `helm uninstall` on a real cluster: the check inside, and the leftovers."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from tests.e2e.harness.cluster import Cluster, Manifest
from tests.e2e.harness.polling import eventually
from tests.e2e.install.rig.real_cluster import RealCluster
from tests.e2e.install.story.leftovers import inventory, leftovers, marked
from tests.e2e.install.story.timeline import Timeline
from tests.e2e.objects.pods import CARDS, pod

pytestmark = [pytest.mark.e2e, pytest.mark.install, pytest.mark.timeout(300)]

SPACE: Final = "gpu-quotas"
RELEASE: Final = "east"
TEAM: Final = "team"
CHART: Final = Path(__file__).parents[3] / "deploy" / "chart" / "gpuledger"
WITHIN: Final = 60.0
GATE: Final = "gpuledger.io/quota"
PODS: Final = f"/api/v1/namespaces/{TEAM}/pods"
QUOTAS: Final = f"/api/v1/namespaces/{TEAM}/resourcequotas"
GROUP: Final = "/apis/gpuledger.io/v1alpha1"
KEPT: Final = {"persistentvolumeclaims", "persistentvolumes"}
"""Resources that stay by intention: the volumes of the log."""


async def test_an_installation_is_checked_and_leaves_nothing_that_blocks(
    real_cluster: RealCluster, product_images: list[Path]
) -> None:
    timeline = Timeline()
    with timeline.step("import the images"):
        for archive in product_images:
            real_cluster.import_image(archive)
    async with real_cluster.connected() as admin:
        before = await inventory(admin)
        with timeline.step("helm install --wait"):
            real_cluster.helm(
                "install",
                RELEASE,
                str(CHART),
                f"--namespace={SPACE}",
                "--create-namespace",
                "--set=cluster=east-1,crds.keep=false,resources.requests.cpu=100m",
                "--set=nats.resources.requests.cpu=100m",
                "--wait",
                "--timeout=180s",
            )
        with timeline.step("helm test: all checks in the cluster"):
            printed = real_cluster.helm("test", RELEASE, f"--namespace={SPACE}", "--logs")
        for check in ("webhooks", "settlement", "admission", "identities", "clock", "log"):
            assert outcome(printed, check) == "ok", printed
        assert "failed" not in outcomes(printed), printed
        assert "not asked" not in outcomes(printed), printed
        with timeline.step("pods wait behind the gate"):
            await make_work(admin)
        with timeline.step("helm uninstall"):
            real_cluster.helm("uninstall", RELEASE, f"--namespace={SPACE}", "--wait")
        await nothing_blocks(admin)
        with timeline.step("compare every object with those before"):
            after = await inventory(admin)
    left = [
        each
        for each in leftovers(before, after)
        if each.resource not in KEPT and each.namespace not in (SPACE, TEAM)
    ]
    assert {item.resource for item in left} <= {"namespaces"}, left
    assert marked(after) == {}


def outcomes(printed: str) -> list[str]:
    """Return the outcomes in the table that `helm test --logs` prints."""
    return [known for line in printed.splitlines() if (known := _outcome(line))]


def outcome(printed: str, check: str) -> str:
    """Return the outcome of one check."""
    lines = (line for line in printed.splitlines() if f" {check} " in f"{line} ")
    return next((known for line in lines if (known := _outcome(line))), "")


def _outcome(line: str) -> str:
    return next(
        (known for known in ("ok", "warning", "failed", "not asked") if line.startswith(known)), ""
    )


async def make_work(admin: Cluster) -> None:
    """Make a namespace whose pods wait, with a default quota, and a pod behind the gate."""
    await admin.must("POST", "/api/v1/namespaces", {"metadata": {"name": TEAM}})
    selector = {"matchLabels": {"kubernetes.io/metadata.name": TEAM}}
    default = {"name": "by-policy", "hard": {f"limits.{CARDS}": "1"}}
    spec = {"namespaceSelector": selector, "onExceeded": "pending", "defaultQuota": default}
    await admin.must("POST", f"{GROUP}/ledgerpolicies", kind("LedgerPolicy", "waiting", spec))
    universe = kind("UniverseResourceQuota", "all", {"hard": {f"limits.{CARDS}": "100"}})
    await admin.must("POST", f"{GROUP}/universeresourcequotas", universe)

    async def gated() -> list[str]:
        await admin.ask("POST", PODS, pod("waiting", generate=True, cards=2))
        return [gate for stored in await admin.items(PODS) for gate in gates(stored)]

    await eventually(gated, lambda names: GATE in names, within=WITHIN, what="a pod is gated")


def kind(name: str, called: str, spec: dict[str, Any]) -> Manifest:
    return {
        "apiVersion": "gpuledger.io/v1alpha1",
        "kind": name,
        "metadata": {"name": called},
        "spec": spec,
    }


def gates(stored: Manifest) -> list[str]:
    return [gate["name"] for gate in stored["spec"].get("schedulingGates", ())]


async def nothing_blocks(admin: Cluster) -> None:
    """Assert that pods are created and none waits."""
    created = await admin.ask("POST", PODS, pod("after"))
    assert created.status == 201, json.dumps(created.body)
    assert [gates(stored) for stored in await admin.items(PODS) if gates(stored)] == []
    assert await admin.items(QUOTAS) == []
