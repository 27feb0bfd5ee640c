"""The reviews of a real API server with workloads of every kind are charged exactly once.

In the recordings every controller acts as the user `admin`, so `admin` is named as one.
"""

import pytest
from support.builders.admission_reviews import GPU, CoreLedger, recorded, serving
from support.fakes.owner_cluster import CATALOG, Manifest, OwnerCluster, around

from ledger.core.model.commands import BARRED, Reserve
from webhook.kinds.kind_catalog import KindCatalog

ADMIN = KindCatalog.load(controllers={kind.name: ("admin",) for kind in CATALOG})
STRANGERS = KindCatalog.load(controllers={kind.name: ("nobody",) for kind in CATALOG})


class Recording:
    """A cluster in which the recorded requests are written one after the other."""

    def __init__(self, catalog: KindCatalog) -> None:
        self.ledger = CoreLedger()
        self.cluster = OwnerCluster()
        self.context = around(self.ledger, self.cluster, catalog=catalog)

    async def replay(self, case: str) -> None:
        """Post all reviews of a case; every allowed object exists from then on."""
        async with serving(self.ledger, context=self.context) as service:
            for webhook, request in recorded(case):
                response = await service.post(request, webhook)
                assert response["allowed"], (case, response)
                if webhook == "validate" and request["request"].get("subResource") is None:
                    self._store(request["request"])

    def _store(self, request: Manifest) -> None:
        if (
            request["operation"] in ("CREATE", "UPDATE")
            and request["object"].get("kind") != "ResourceQuota"
        ):
            manifest = request["object"]
            manifest["metadata"].setdefault("resourceVersion", "1")
            self.cluster.put(manifest)

    def reserved(self) -> list[tuple[str, str, dict[str, int]]]:
        """Return key, root and demand of everything that was reserved for."""
        reserves = [command for command in self.ledger.commands() if isinstance(command, Reserve)]
        return [(reserve.key, reserve.root, reserve.demand) for reserve in reserves]


def times(count: int, of: dict[str, int]) -> dict[str, int]:
    return {name: count * amount for name, amount in of.items()}


async def test_a_deployment_is_charged_once_and_its_pods_draw_from_it() -> None:
    recording = Recording(ADMIN)
    await recording.replay("deployment-create")
    root, *pods = recording.reserved()
    assert root[:2] == ("deployments.apps/d", "")
    pod_demand = pods[0][2]
    assert root[2] == times(3, pod_demand)
    assert len(pods) == 3
    assert {(key.partition("/")[0], drawn) for key, drawn, _ in pods} == {
        ("pods", "deployments.apps/d")
    }
    assert recording.ledger.state.namespaces["east/team"].draws["deployments.apps/d"].charge == (
        times(3, pod_demand)
    )


async def test_where_the_controllers_are_others_nothing_draws() -> None:
    recording = Recording(STRANGERS)
    await recording.replay("deployment-create")
    root, *others = recording.reserved()
    assert root[:2] == ("deployments.apps/d", "")
    assert [key.partition("/")[0] for key, _, _ in others] == ["replicasets.apps", *["pods"] * 3]
    assert {drawn for _, drawn, _ in others} == {BARRED}


async def test_a_job_is_charged_once_and_its_pods_draw_from_it() -> None:
    recording = Recording(ADMIN)
    await recording.replay("job-create")
    root, *pods = recording.reserved()
    assert root[0] == "jobs.batch/j"
    assert {drawn for _, drawn, _ in pods} == {"jobs.batch/j"}
    assert len(pods) == 4


async def test_a_suspension_asks_for_nothing_and_what_follows_it_does() -> None:
    recording = Recording(ADMIN)
    await recording.replay("job-create")
    before = len(recording.reserved())
    await recording.replay("job-suspend")
    after = recording.reserved()[before:]
    assert {key for key, _, _ in after} <= {"jobs.batch/j"}


@pytest.mark.parametrize(
    ("case", "key"),
    [
        ("statefulset-create", "statefulsets.apps/s"),
        ("jobset-create", "jobsets.jobset.x-k8s.io/w"),
        ("leaderworkerset-create", "leaderworkersets.leaderworkerset.x-k8s.io/w"),
        ("mpijob-create", "mpijobs.kubeflow.org/w"),
        ("pytorchjob-create", "pytorchjobs.kubeflow.org/w"),
        ("raycluster-create", "rayclusters.ray.io/w"),
    ],
)
async def test_every_recorded_kind_is_charged_at_its_root(case: str, key: str) -> None:
    recording = Recording(ADMIN)
    await recording.replay(case)
    roots = [
        (reserved_key, demand)
        for reserved_key, _, demand in recording.reserved()
        if reserved_key == key
    ]
    assert len(roots) == 1
    assert roots[0][1][GPU] >= 1


@pytest.mark.parametrize("case", ["deployment-update-no-change", "deployment-status"])
async def test_what_asks_for_no_more_is_not_charged_again(case: str) -> None:
    recording = Recording(ADMIN)
    await recording.replay(case)
    assert [key for key, _, _ in recording.reserved() if key.startswith("deployments")] == []


async def test_applied_deployment_arrives_as_a_creation_then_as_an_update() -> None:
    recording = Recording(ADMIN)
    await recording.replay("deployment-server-side-apply")
    await recording.replay("deployment-server-side-apply-again")
    keys = {key for key, _, _ in recording.reserved() if key.startswith("deployments")}
    assert keys == {"deployments.apps/d2"}
