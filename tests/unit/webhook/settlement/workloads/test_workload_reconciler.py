"""Workloads of any kind: commits, releases and recounts."""

import msgspec
import pytest
from support.builders.kind_objects import kind_named
from support.builders.settled_workloads import (
    ONE,
    TWO,
    WEB,
    change,
    charged,
    committed,
    create,
    reserve,
    web_with_pods,
)
from support.fakes.full_cluster import (
    DEPLOYMENTS,
    JOBS,
    deployment,
    template,
    workload,
)
from support.harness.settlement import (
    CLUSTER,
    RULES,
    full_world,
    session_of,
    settling,
)

from ledger.core.model.commands import Observe
from ledger.core.model.events import Cause
from ledger.core.model.state import State
from ledger.kube.api.cluster_ports import Listed
from ledger.kube.api.errors import NotServed
from ledger.kube.api.objects import Workload
from ledger.log.ledger import Accepted
from webhook.settlement.attempt_ages import AttemptAges
from webhook.settlement.invalid_objects import InvalidObjects
from webhook.settlement.workloads.charging_modes import ChargingModes
from webhook.settlement.workloads.workload_observation import ChargingMode, observe_workload
from webhook.settlement.workloads.workload_reconciler import WorkloadReconciler


async def test_reserved_workload_is_committed_when_it_exists():
    async with full_world() as one, settling(one):
        await one.synced()
        await reserve(one, WEB, "web-uid")
        create(one, DEPLOYMENTS, deployment("web"), "web-uid")
        await one.until(lambda: committed(one, WEB) is not None)
        assert charged(one, WEB) == TWO
        assert committed(one, WEB).generation == 1
        assert one.drift == {}


async def test_unreserved_workload_is_charged_and_counted_as_drift():
    async with full_world() as one, settling(one):
        await one.synced()
        create(one, DEPLOYMENTS, deployment("web"))
        await one.until(lambda: charged(one, WEB) == TWO)
        assert one.drift == {Cause.UNRESERVED: 1}


async def test_pods_draw_from_the_envelope_of_their_deployment():
    async with full_world() as one, settling(one):
        await one.synced()
        web_with_pods(one)
        await one.until(lambda: one.entry("web-1-1") is not None)
        await one.until(lambda: charged(one, WEB) == TWO)
        assert {one.entry(f"web-1-{number}").root for number in range(2)} == {WEB}
        space = one.state.namespaces[f"{CLUSTER}/red"]
        assert space.draws[WEB].charge == TWO
        assert one.root("replicasets.apps/web-1") is None


async def test_decrease_releases_amounts_and_a_status_never_raises_them():
    async with full_world() as one, settling(one):
        await one.synced()
        body = workload(JOBS, "train", parallelism=2, completions=4, template=template())
        create(one, JOBS, body, "job-uid")
        await one.until(lambda: charged(one, "jobs.batch/train") == TWO)
        change(one, JOBS, "train", status={"succeeded": 3})
        await one.until(lambda: charged(one, "jobs.batch/train") == ONE)
        before = len(one.asked)
        change(one, JOBS, "train", status={"succeeded": 0})
        create(one, JOBS, workload(JOBS, "last", template=template()))
        await one.until(lambda: charged(one, "jobs.batch/last") == ONE)
        assert charged(one, "jobs.batch/train") == ONE
        assert len(one.asked) == before + 1


async def test_finished_job_ends_and_suspended_job_is_charged_nothing():
    async with full_world() as one, settling(one):
        await one.synced()
        for name in ("a", "b"):
            job = workload(JOBS, name, parallelism=2, completions=2, template=template())
            create(one, JOBS, job, f"{name}-uid")
        await one.until(lambda: charged(one, "jobs.batch/b") == TWO)
        done = {"conditions": [{"type": "Complete", "status": "True"}]}
        change(one, JOBS, "a", status=done)
        change(one, JOBS, "b", generation=2, spec={"suspend": True})
        await one.until(lambda: one.root("jobs.batch/a") is None)
        await one.until(lambda: charged(one, "jobs.batch/b") == {})
        assert one.state.ended["a-uid"].cause == Cause.FINISHED
        assert one.root("jobs.batch/b") is not None


async def test_change_of_status_sends_no_command():
    async with full_world() as one, settling(one):
        await one.synced()
        create(one, DEPLOYMENTS, deployment("web"))
        await one.until(lambda: charged(one, WEB) == TWO)
        before = len(one.asked)
        for ready in range(20):
            change(one, DEPLOYMENTS, "web", status={"readyReplicas": ready})
        create(one, DEPLOYMENTS, deployment("last"))
        await one.until(lambda: charged(one, "deployments.apps/last") == TWO)
        assert len(one.asked) == before + 1


async def test_workload_without_managed_resources_sends_no_command():
    async with full_world() as one, settling(one):
        await one.synced()
        before = len(one.asked)
        plain = {"metadata": {}, "spec": {"containers": [{"name": "main"}]}}
        create(one, DEPLOYMENTS, workload(DEPLOYMENTS, "plain", replicas=3, template=plain))
        create(one, DEPLOYMENTS, deployment("last"))
        await one.until(lambda: charged(one, "deployments.apps/last") == TWO)
        assert len(one.asked) == before + 1


async def test_creation_is_released_when_one_list_of_its_kind_lacks_it():
    async with full_world(settle_seconds=0.2) as one, settling(one):
        await one.synced()
        await reserve(one, WEB, "web-uid")
        await one.until(lambda: one.root(WEB) is None)
        assert one.state.ended["web-uid"].cause == Cause.ABSENT
        assert ("deployments.apps", "red") in one.cluster.lists
        assert one.drift == {}


async def test_kind_releases_nothing_when_served_again_before_the_proof():
    async with full_world(settle_seconds=0.2) as one, settling(one):
        await one.synced()
        create(one, DEPLOYMENTS, deployment("other"))

        async def not_served(*_):
            raise NotServed("for a moment")

        one.cluster.list_objects = not_served
        await reserve(one, WEB, "web-uid")
        await one.until(lambda: one.counted["settle_failures_total",] > 0)
        assert one.root(WEB).holds


async def test_unwritten_update_is_released_and_its_workload_stays():
    async with full_world(settle_seconds=0.2) as one, settling(one):
        await one.synced()
        created = create(one, DEPLOYMENTS, deployment("web"), "web-uid")
        await one.until(lambda: charged(one, WEB) == TWO)
        base = int(created["metadata"]["resourceVersion"])
        await reserve(one, WEB, "web-uid", {"nvidia.com/gpu": 9}, base)
        assert one.root(WEB).charge["nvidia.com/gpu"] == 9
        await one.until(lambda: charged(one, WEB) == TWO)


async def test_changes_during_a_gap_are_recounted():
    async with full_world() as one:
        async with settling(one):
            await one.synced()
            create(one, DEPLOYMENTS, deployment("stays"), "stays")
            create(one, DEPLOYMENTS, deployment("goes"), "goes")
            await one.until(lambda: charged(one, "deployments.apps/goes") == TWO)
            await one.until(lambda: charged(one, "deployments.apps/stays") == TWO)
        one.server.delete(DEPLOYMENTS.name, "red", "goes")
        change(one, DEPLOYMENTS, "stays", generation=2, spec={"replicas": 1})
        web_with_pods(one)
        one.counted.clear()
        async with settling(one):
            await one.synced()
            assert charged(one, "deployments.apps/stays") == ONE
            assert one.root("deployments.apps/goes") is None
            assert charged(one, WEB) == TWO
            assert one.entry("web-1-0").root == WEB
            assert one.drift == {Cause.DELETED: 1, Cause.UNRESERVED: 3}


class Behind:
    """A view that is behind the log until it was asked for something, as a cut-off replica's is."""

    def __init__(self, writer):
        self._writer, self._asked = writer, False

    @property
    def state(self) -> State:
        return self._writer.state if self._asked else State()

    async def submit(self, command, *, dry_run=False):
        self._asked = True
        return await self._writer.submit(command, dry_run=dry_run)


async def test_list_is_compared_with_a_state_as_new_as_the_list():
    async with full_world() as one:
        await reserve(one, WEB, "web-uid")
        seen = Observe(f"{CLUSTER}/red", WEB, "web-uid", 5, TWO)
        assert isinstance(await one.writer.submit(seen), Accepted)
        async with session_of(one, Behind(one.writer)) as session:
            roots = WorkloadReconciler(
                kind_named("deployments.apps"),
                DEPLOYMENTS,
                session=session,
                ages=AttemptAges(),
                invalid_objects=InvalidObjects(),
                charging_modes=ChargingModes(one.context.policies),
                recheck=print,
            )
            await roots.take(Listed(9, []))
        assert one.root(WEB) is None


async def test_uncharged_workload_keeps_its_traits():
    kind = kind_named("deployments.apps")
    body = deployment("web")
    found = msgspec.convert(body | {"metadata": {"name": "web", "namespace": "red"}}, Workload)
    usual = observe_workload(kind, found, CLUSTER, RULES, ChargingMode())
    free = observe_workload(kind, found, CLUSTER, RULES, ChargingMode(pods_only=True))
    assert free.seen.traits == usual.seen.traits != ()
    assert (usual.seen.demand, free.seen.demand) == (TWO, {})


async def test_invalid_workload_is_charged_nothing_and_counted():
    odd = template()
    odd["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpumem"] = "16Gi"
    async with full_world() as one, settling(one):
        await one.synced()
        create(one, DEPLOYMENTS, workload(DEPLOYMENTS, "odd", replicas=1, template=odd))
        await one.until(lambda: one.settlement.invalid_objects == 1)
        assert one.root("deployments.apps/odd") is None
        one.server.delete(DEPLOYMENTS.name, "red", "odd")
        await one.until(lambda: one.settlement.invalid_objects == 0)


@pytest.mark.parametrize("cause", ["deleted", "recreated"])
async def test_deleted_deployment_is_released(cause):
    async with full_world() as one, settling(one):
        await one.synced()
        create(one, DEPLOYMENTS, deployment("web"), "web-uid")
        await one.until(lambda: charged(one, WEB) == TWO)
        one.server.delete(DEPLOYMENTS.name, "red", "web")
        if cause == "recreated":
            create(one, DEPLOYMENTS, deployment("web", 1), "new-uid")
            await one.until(lambda: charged(one, WEB) == ONE)
        else:
            await one.until(lambda: one.root(WEB) is None)
        assert one.state.ended["web-uid"].cause == Cause.DELETED
