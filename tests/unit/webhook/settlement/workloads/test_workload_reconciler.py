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

from ledger.core import snapshot_format
from ledger.core.model.commands import Observe
from ledger.core.model.events import Cause
from ledger.core.model.state import State
from ledger.kube.api.cluster_errors import NotServed
from ledger.kube.api.cluster_ports import Changed, Listed
from ledger.kube.api.objects import Workload
from ledger.log.ledger_port import Accepted
from webhook.context.admitted_demand import Awaited
from webhook.settlement.invalid_objects import InvalidObjects
from webhook.settlement.observation_commands import ObservedObject
from webhook.settlement.open_attempt_ages import AttemptAges
from webhook.settlement.workloads.charging_modes import ChargingMode, ChargingModes
from webhook.settlement.workloads.workload_observation import ObservedWorkload, observe_workload
from webhook.settlement.workloads.workload_reconciler import WorkloadReconciler


async def test_reserved_workload_is_committed_when_it_exists():
    async with full_world() as world, settling(world):
        await world.synced()
        await reserve(world, WEB, "web-uid")
        create(world, DEPLOYMENTS, deployment("web"), "web-uid")
        await world.until(lambda: committed(world, WEB) is not None)
        assert charged(world, WEB) == TWO
        assert committed(world, WEB).generation == 1
        assert world.drift == {}


async def test_unreserved_workload_is_charged_and_counted_as_drift():
    async with full_world() as world, settling(world):
        await world.synced()
        create(world, DEPLOYMENTS, deployment("web"))
        await world.until(lambda: charged(world, WEB) == TWO)
        assert world.drift == {Cause.UNRESERVED: 1}


async def test_pods_draw_from_the_envelope_of_their_deployment():
    async with full_world() as world, settling(world):
        await world.synced()
        web_with_pods(world)
        await world.until(lambda: world.entry("web-1-1") is not None)
        await world.until(lambda: charged(world, WEB) == TWO)
        assert {world.entry(f"web-1-{number}").root for number in range(2)} == {WEB}
        space = world.state.namespaces[f"{CLUSTER}/red"]
        assert space.draws[WEB].charge == TWO
        assert world.root("replicasets.apps/web-1") is None


async def test_decrease_releases_amounts_and_a_status_never_raises_them():
    async with full_world() as world, settling(world):
        await world.synced()
        body = workload(JOBS, "train", parallelism=2, completions=4, template=template())
        create(world, JOBS, body, "job-uid")
        await world.until(lambda: charged(world, "jobs.batch/train") == TWO)
        change(world, JOBS, "train", status={"succeeded": 3})
        await world.until(lambda: charged(world, "jobs.batch/train") == ONE)
        before = len(world.asked)
        change(world, JOBS, "train", status={"succeeded": 0})
        create(world, JOBS, workload(JOBS, "last", template=template()))
        await world.until(lambda: charged(world, "jobs.batch/last") == ONE)
        assert charged(world, "jobs.batch/train") == ONE
        assert len(world.asked) == before + 1


async def test_finished_job_ends_and_suspended_job_is_charged_nothing():
    async with full_world() as world, settling(world):
        await world.synced()
        for name in ("a", "b"):
            job = workload(JOBS, name, parallelism=2, completions=2, template=template())
            create(world, JOBS, job, f"{name}-uid")
        await world.until(lambda: charged(world, "jobs.batch/b") == TWO)
        done = {"conditions": [{"type": "Complete", "status": "True"}]}
        change(world, JOBS, "a", status=done)
        change(world, JOBS, "b", generation=2, spec={"suspend": True})
        await world.until(lambda: world.root("jobs.batch/a") is None)
        await world.until(lambda: charged(world, "jobs.batch/b") == {})
        assert world.state.ended["a-uid"].cause == Cause.FINISHED
        assert world.root("jobs.batch/b") is not None


async def test_change_of_status_sends_no_command():
    async with full_world() as world, settling(world):
        await world.synced()
        create(world, DEPLOYMENTS, deployment("web"))
        await world.until(lambda: charged(world, WEB) == TWO)
        before = len(world.asked)
        for ready in range(20):
            change(world, DEPLOYMENTS, "web", status={"readyReplicas": ready})
        create(world, DEPLOYMENTS, deployment("last"))
        await world.until(lambda: charged(world, "deployments.apps/last") == TWO)
        assert len(world.asked) == before + 1


async def test_workload_without_managed_resources_sends_no_command():
    async with full_world() as world, settling(world):
        await world.synced()
        before = len(world.asked)
        plain = {"metadata": {}, "spec": {"containers": [{"name": "main"}]}}
        create(world, DEPLOYMENTS, workload(DEPLOYMENTS, "plain", replicas=3, template=plain))
        create(world, DEPLOYMENTS, deployment("last"))
        await world.until(lambda: charged(world, "deployments.apps/last") == TWO)
        assert len(world.asked) == before + 1


async def test_creation_is_released_when_one_list_of_its_kind_lacks_it():
    async with full_world(settle_seconds=0.2) as world, settling(world):
        await world.synced()
        await reserve(world, WEB, "web-uid")
        await world.until(lambda: world.root(WEB) is None)
        assert world.state.ended["web-uid"].cause == Cause.ABSENT
        assert ("deployments.apps", "red") in world.cluster.lists
        assert world.drift == {}


async def test_kind_releases_nothing_when_served_again_before_the_proof():
    async with full_world(settle_seconds=0.2) as world, settling(world):
        await world.synced()
        create(world, DEPLOYMENTS, deployment("other"))

        async def not_served(*_):
            raise NotServed("for a moment")

        world.cluster.list_objects = not_served
        await reserve(world, WEB, "web-uid")
        await world.until(lambda: world.counted["settle_failures_total",] > 0)
        assert world.root(WEB).holds


async def test_unwritten_update_is_released_and_its_workload_stays():
    async with full_world(settle_seconds=0.2) as world, settling(world):
        await world.synced()
        created = create(world, DEPLOYMENTS, deployment("web"), "web-uid")
        await world.until(lambda: charged(world, WEB) == TWO)
        base = int(created["metadata"]["resourceVersion"])
        await reserve(world, WEB, "web-uid", {"nvidia.com/gpu": 9}, base)
        assert world.root(WEB).charge["nvidia.com/gpu"] == 9
        await world.until(lambda: charged(world, WEB) == TWO)


async def test_changes_during_a_gap_are_recounted():
    async with full_world() as world:
        async with settling(world):
            await world.synced()
            create(world, DEPLOYMENTS, deployment("stays"), "stays")
            create(world, DEPLOYMENTS, deployment("goes"), "goes")
            await world.until(lambda: charged(world, "deployments.apps/goes") == TWO)
            await world.until(lambda: charged(world, "deployments.apps/stays") == TWO)
        world.server.delete(DEPLOYMENTS.name, "red", "goes")
        change(world, DEPLOYMENTS, "stays", generation=2, spec={"replicas": 1})
        web_with_pods(world)
        world.counted.clear()
        async with settling(world):
            await world.synced()
            assert charged(world, "deployments.apps/stays") == ONE
            assert world.root("deployments.apps/goes") is None
            assert charged(world, WEB) == TWO
            assert world.entry("web-1-0").root == WEB
            assert world.drift == {Cause.DELETED: 1, Cause.UNRESERVED: 3}


class Behind:
    """A view that is behind the log until it was asked for something, as a cut-off replica's is."""

    def __init__(self, writer, earlier=None):
        self._writer, self._asked, self._earlier = writer, False, earlier or State()

    @property
    def state(self) -> State:
        return self._writer.state if self._asked else self._earlier

    async def submit(self, command, *, dry_run=False):
        self._asked = True
        return await self._writer.submit(command, dry_run=dry_run)


async def test_list_is_compared_with_a_state_as_new_as_the_list():
    async with full_world() as world:
        await reserve(world, WEB, "web-uid")
        seen = Observe(f"{CLUSTER}/red", WEB, "web-uid", 5, TWO)
        assert isinstance(await world.writer.submit(seen), Accepted)
        async with session_of(world, Behind(world.writer)) as session:
            roots = WorkloadReconciler(
                kind_named("deployments.apps"),
                DEPLOYMENTS,
                session=session,
                ages=AttemptAges(),
                invalid_objects=InvalidObjects(),
                charging_modes=ChargingModes(world.context.policies),
                recheck=print,
            )
            await roots.take(Listed(9, []))
        assert world.root(WEB) is None


@pytest.mark.parametrize("part", [{"awaited": Awaited(ONE)}, {"assumed": tuple(TWO)}])
async def test_claims_that_another_replica_admitted_stay_charged(part):
    """Templates are awaited, and the size of devices is assumed, as of the replica's state."""
    async with full_world() as world:
        await reserve(world, WEB, "web-uid", ONE)
        await world.writer.submit(Observe(f"{CLUSTER}/red", WEB, "web-uid", 5, ONE))
        earlier = snapshot_format.decode(snapshot_format.encode(world.state))
        await reserve(world, WEB, "web-uid", base=5)
        seen = ObservedObject(f"{CLUSTER}/red", WEB, "web-uid", 9, TWO, traits=("t",), **part)
        async with session_of(world, Behind(world.writer, earlier)) as session:
            roots = WorkloadReconciler(
                kind_named("deployments.apps"),
                DEPLOYMENTS,
                session=session,
                ages=AttemptAges(),
                invalid_objects=InvalidObjects(),
                charging_modes=ChargingModes(world.context.policies),
                recheck=print,
            )
            await roots.take(Changed(9, ObservedWorkload(seen, None)))
            await session.commands.flush()
        assert charged(world, WEB) == TWO


async def test_uncharged_workload_keeps_its_traits():
    kind = kind_named("deployments.apps")
    body = deployment("web")
    web = msgspec.convert(body | {"metadata": {"name": "web", "namespace": "red"}}, Workload)
    usual = observe_workload(kind, web, CLUSTER, RULES, ChargingMode())
    free = observe_workload(kind, web, CLUSTER, RULES, ChargingMode(pods_only=True))
    assert free.seen.traits == usual.seen.traits != ()
    assert (usual.seen.demand, free.seen.demand) == (TWO, {})


async def test_invalid_workload_is_charged_nothing_and_counted():
    odd = template()
    odd["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpumem"] = "16Gi"
    async with full_world() as world, settling(world):
        await world.synced()
        create(world, DEPLOYMENTS, workload(DEPLOYMENTS, "odd", replicas=1, template=odd))
        await world.until(lambda: world.settlement.invalid_objects == 1)
        assert world.root("deployments.apps/odd") is None
        world.server.delete(DEPLOYMENTS.name, "red", "odd")
        await world.until(lambda: world.settlement.invalid_objects == 0)


@pytest.mark.parametrize("cause", ["deleted", "recreated"])
async def test_deleted_deployment_is_released(cause):
    async with full_world() as world, settling(world):
        await world.synced()
        create(world, DEPLOYMENTS, deployment("web"), "web-uid")
        await world.until(lambda: charged(world, WEB) == TWO)
        world.server.delete(DEPLOYMENTS.name, "red", "web")
        if cause == "recreated":
            create(world, DEPLOYMENTS, deployment("web", 1), "new-uid")
            await world.until(lambda: charged(world, WEB) == ONE)
        else:
            await world.until(lambda: world.root(WEB) is None)
        assert world.state.ended["web-uid"].cause == Cause.DELETED
