"""A scale has a number of replicas; the template is in the parent at the same version."""

import asyncio
import json
from copy import deepcopy
from typing import Any

import pytest
from support.builders.admission_reviews import (
    GPU,
    MEMORY,
    NAMESPACE,
    CoreLedger,
    recorded,
    review,
    serving,
)
from support.fakes.owner_cluster import (
    CRONJOBS,
    DEPLOYMENTS,
    SETS,
    Manifest,
    OwnerCluster,
    around,
    manifest,
    of,
    remember,
    template,
)

from ledger.core.model.commands import BARRED, Observe, Reserve
from ledger.core.model.devices import Device
from ledger.kube.api.api_resources import Resource
from ledger.kube.api.cluster_errors import ClusterUnavailable
from webhook.admission.explanation import explain
from webhook.context import read_deadline
from webhook.context.namespace_policies import NamespacePolicy

WEB = manifest(DEPLOYMENTS, "web", replicas=2)
KEY = "deployments.apps/web"


def scale(replicas: int | None, version: int = 5, uid: str = "u-web") -> Manifest:
    meta = {"name": "web", "namespace": "team", "uid": uid, "resourceVersion": str(version)}
    spec = {} if replicas is None else {"replicas": replicas}
    return {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": meta, "spec": spec}


class Namespace:
    """One namespace in which something is scaled."""

    def __init__(self, cluster: OwnerCluster | None, **policy: Any) -> None:
        self.ledger = CoreLedger()
        self.context = around(self.ledger, cluster, default=NamespacePolicy(**policy))

    async def scale(
        self, to: int, old: Manifest | None = None, resource: Resource = DEPLOYMENTS, **more: Any
    ) -> dict[str, Any]:
        old = old or scale(2)
        new = deepcopy(old)
        new["spec"]["replicas"] = to
        request = review(new, old, operation="UPDATE", **of(resource, "scale"), **more)
        async with serving(self.ledger, context=self.context) as service:
            return await service.post(request)


async def test_increase_is_held_on_the_parent_at_its_base_version() -> None:
    cluster = OwnerCluster(WEB)
    team = Namespace(cluster)
    team.ledger.limit(cards=3)
    assert (await team.scale(3))["allowed"]
    observe, reserve = team.ledger.commands()
    assert observe == Observe(
        NAMESPACE,
        KEY,
        "u-web",
        5,
        {GPU: 2, MEMORY: 16_000},
        "ada",
        traits=("!best-effort",),
        generation=1,
    )
    assert isinstance(reserve, Reserve)
    assert (reserve.key, reserve.uid, reserve.base) == (KEY, "u-web", 5)
    assert reserve.demand == {GPU: 3, MEMORY: 24_000}
    response = await team.scale(4)
    assert "allows 3, 3 are used" in response["status"]["message"]


@pytest.mark.parametrize("to", [2, 1, 0])
async def test_scale_passes_untouched_when_replicas_do_not_increase(to: int) -> None:
    cluster = OwnerCluster(WEB)
    team = Namespace(cluster)
    assert await team.scale(to) == {"uid": "call-1", "allowed": True}
    assert (team.ledger.submitted, cluster.asked) == ([], [])


async def test_an_increase_from_no_replicas_at_all_is_held() -> None:
    team = Namespace(OwnerCluster(manifest(DEPLOYMENTS, "web", replicas=0)))
    await team.scale(1, scale(None))
    assert [type(command) for command in team.ledger.commands()] == [Observe, Reserve]


async def test_a_parent_that_is_remembered_at_that_version_is_not_read() -> None:
    cluster = OwnerCluster()
    team = Namespace(cluster)
    await remember(team.context, DEPLOYMENTS, WEB)
    team.ledger.limit(cards=2)
    assert not (await team.scale(3))["allowed"]
    assert cluster.asked == []


async def test_a_parent_that_is_remembered_at_another_version_is_read() -> None:
    stale = deepcopy(WEB)
    stale["spec"]["template"] = template({GPU: "8", MEMORY: "1"})
    stale["metadata"]["resourceVersion"] = "4"
    cluster = OwnerCluster(WEB)
    team = Namespace(cluster)
    await remember(team.context, DEPLOYMENTS, stale)
    assert (await team.scale(3))["allowed"]
    assert cluster.asked == [("deployments.apps", "web")]
    reserve = team.ledger.commands()[-1]
    assert isinstance(reserve, Reserve)
    assert reserve.demand[GPU] == 3


async def test_a_parent_that_asks_for_nothing_is_remembered_as_such() -> None:
    cluster = OwnerCluster()
    team = Namespace(cluster)
    plain = manifest(DEPLOYMENTS, "web", template=template({"cpu": "1"}))
    await remember(team.context, DEPLOYMENTS, plain)
    assert await team.scale(3) == {"uid": "call-1", "allowed": True}
    assert (team.ledger.submitted, cluster.asked) == ([], [])


@pytest.mark.parametrize(("version", "uid"), [(6, "u-web"), (5, "u-other")])
async def test_a_scale_that_another_write_has_overtaken_is_left_to_its_next_try(
    version: int, uid: str
) -> None:
    newer = deepcopy(WEB)
    newer["metadata"] |= {"resourceVersion": str(version), "uid": uid}
    team = Namespace(OwnerCluster(newer))
    assert await team.scale(3) == {"uid": "call-1", "allowed": True}
    assert team.ledger.submitted == []


@pytest.mark.parametrize("how", ["fails", "is silent", "is behind", "is not there"])
async def test_scale_is_allowed_with_a_warning_when_the_parent_is_missing(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_deadline, "REVIEW_READ_SECONDS", 0.01)
    behind = deepcopy(WEB)
    behind["metadata"]["resourceVersion"] = "4"
    cluster = OwnerCluster(behind)
    cluster.failing = ClusterUnavailable("down") if how == "fails" else None
    cluster.silent = how == "is silent"
    team = Namespace(None if how == "is not there" else cluster)
    async with asyncio.timeout(5):
        response = await team.scale(3)
    assert response["allowed"]
    [warning] = response["warnings"]
    assert warning.startswith("scaled without asking the ledger: ")
    assert warning.endswith("its pods are checked one by one")
    assert team.ledger.submitted == []


async def test_what_belongs_to_another_root_is_not_charged_when_it_is_scaled() -> None:
    child = manifest(SETS, "web", owner=manifest(DEPLOYMENTS, "above"), replicas=2)
    team = Namespace(OwnerCluster(child, manifest(DEPLOYMENTS, "above")))
    assert (await team.scale(3, resource=SETS))["allowed"]
    assert team.ledger.submitted == []
    held = Reserve(NAMESPACE, "replicasets.apps/web", "u-web", {GPU: 2}, root=BARRED)
    await team.ledger.submit(held)
    await team.scale(3, resource=SETS)
    reserve = team.ledger.commands()[-1]
    assert isinstance(reserve, Reserve)
    assert reserve.root == BARRED


async def test_a_kind_without_a_scale_of_its_own_passes_untouched() -> None:
    cluster = OwnerCluster()
    assert await Namespace(cluster).scale(3, resource=CRONJOBS) == {
        "uid": "call-1",
        "allowed": True,
    }
    assert cluster.asked == []


async def test_where_policy_yields_a_scale_is_charged_over_the_limit() -> None:
    team = Namespace(OwnerCluster(WEB), mode="warn")
    team.ledger.limit(cards=2)
    response = await team.scale(3)
    assert response["allowed"]
    assert response["warnings"][0] == (
        "over the limit: namespace team has no GPUs left: Deployment web would need 3 GPUs"
        ' (3 pods \N{MULTIPLICATION SIGN} 1), quota "gpu" allows 2, 2 are used.'
        " [ExceedsLimit; decision d-1]"
    )
    assert team.ledger.used() == {f"limits.{GPU}": 3}


@pytest.mark.parametrize("case", ["deployment-scale", "deployment-scale-put"])
async def test_recorded_scales_are_judged_by_the_recorded_parent(case: str) -> None:
    [(_, request)] = [
        recording
        for recording in recorded(case, "validate")
        if recording[1]["request"].get("subResource") == "scale"
    ]
    new, old = request["request"]["object"], request["request"]["oldObject"]
    parent = manifest(DEPLOYMENTS, new["metadata"]["name"], replicas=old["spec"]["replicas"])
    parent["metadata"] |= {
        name: old["metadata"][name] for name in ("uid", "resourceVersion", "namespace")
    }
    team = Namespace(OwnerCluster(parent))
    async with serving(team.ledger, context=team.context) as service:
        assert (await service.post(request))["allowed"]
    reserves = [command for command in team.ledger.commands() if isinstance(command, Reserve)]
    rises = new["spec"]["replicas"] > old["spec"]["replicas"]
    assert [reserve.demand[GPU] for reserve in reserves] == [new["spec"]["replicas"]] * rises


async def test_scale_is_explained_as_decided_when_pods_are_allocated() -> None:
    cluster = OwnerCluster(WEB)
    cluster.namespace("team")
    team = Namespace(cluster)
    team.ledger.limit(memory=19_999)
    team.ledger.apply(Observe(NAMESPACE, KEY, "u-web", 3, {GPU: 2, MEMORY: 16_000}, generation=1))
    for name in ("a", "b"):
        where, each = (NAMESPACE, f"pods/{name}", name), {GPU: 1, MEMORY: 8000}
        team.ledger.apply(Observe(*where, 4, each, root=KEY))
        given = Device("c", "gpu", "gpu.example.com", "n1", name)
        team.ledger.apply(Observe(*where, 5, each | {MEMORY: 6000}, root=KEY, devices=(given,)))
    assert team.ledger.used()[f"limits.{MEMORY}"] == 12_000
    asked = review(scale(3), scale(2), operation="UPDATE", **of(DEPLOYMENTS, "scale"))
    async with serving(team.ledger, context=team.context) as service:
        explained = await explain(service.validating, json.dumps(asked).encode(), deadline=5)
    assert explained.demand == {GPU: 3, MEMORY: 24_000}
    assert "Deployment web would need 20000 MiB" in explained.answer
    assert (await team.scale(3))["status"]["message"] == explained.answer
    team.ledger.limit(memory=20_000)
    assert (await team.scale(3))["allowed"]
    assert team.ledger.used()[f"limits.{MEMORY}"] == 20_000
