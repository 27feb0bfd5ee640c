"""Settling workloads of any kind, with the pods that draw from them."""

import msgspec
import pytest
from support.builders.kind_objects import kind_named
from support.fakes.apiserver import pod_body
from support.fakes.full_cluster import (
    DEPLOYMENTS,
    JOBS,
    JOBSETS,
    REPLICASETS,
    deployment,
    reference,
    template,
    workload,
)
from support.harness.settlement import (
    CLUSTER,
    RULES,
    World,
    full_world,
    pod_reconciler,
    session_of,
    settling,
)

from ledger.core.model.commands import BARRED, Observe, Reserve
from ledger.core.model.events import Cause
from ledger.core.model.state import State
from ledger.kube.api.errors import ClusterUnavailable, NotServed
from ledger.kube.api.objects import Pod, Workload
from ledger.kube.api.ports import Listed
from ledger.log.ledger import Accepted
from webhook.settlement import recheck_queue
from webhook.settlement.attempt_ages import AttemptAges
from webhook.settlement.invalid_objects import InvalidObjects
from webhook.settlement.workloads.charging_modes import ChargingModes
from webhook.settlement.workloads.workload_observation import ChargingMode, observe_workload
from webhook.settlement.workloads.workload_reconciler import WorkloadReconciler

WEB = "deployments.apps/web"
ONE = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 1000}
TWO = {"nvidia.com/gpu": 2, "nvidia.com/gpumem": 2000}


def create(one: World, resource, body, uid: str = ""):
    return one.server.create(resource.name, "red", body, uid)


def change(one: World, resource, name: str, *, generation: int = 0, **parts) -> None:
    if generation:
        parts["metadata"] = parts.get("metadata", {}) | {"generation": generation}
    one.server.update(resource.name, "red", name, **parts)


def pod(one: World, name: str, owner=None, uid: str = ""):
    body = pod_body(name, gpucores=0)
    if owner is not None:
        body["metadata"]["ownerReferences"] = [reference(owner)]
    return one.server.create("pods", "red", body, uid)


def web_with_pods(one: World, pods: int = 2):
    """Create a Deployment with its ReplicaSet and pods; return the ReplicaSet."""
    web = create(one, DEPLOYMENTS, deployment("web", pods), "web-uid")
    owned = workload(REPLICASETS, "web-1", web, replicas=pods, template=template())
    made = create(one, REPLICASETS, owned, "rs-uid")
    for number in range(pods):
        pod(one, f"web-1-{number}", made)
    return made


def committed(one: World, key: str):
    entry = one.root(key)
    return entry.committed if entry is not None and not entry.holds else None


def charged(one: World, key: str) -> dict:
    stored = committed(one, key)
    return stored.demand if stored is not None else {}


async def reserve(one: World, key: str, uid: str, demand=TWO, base: int = 0, **fields) -> None:
    command = Reserve(f"{CLUSTER}/red", key, uid, demand, base, **fields)
    assert isinstance(await one.writer.submit(command), Accepted)


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


async def test_orphans_move_to_the_remaining_replicaset():
    async with full_world() as one, settling(one):
        await one.synced()
        web_with_pods(one)
        await one.until(lambda: charged(one, WEB) == TWO and one.entry("web-1-1") is not None)
        change(one, REPLICASETS, "web-1", metadata={"ownerReferences": []})
        one.server.delete(DEPLOYMENTS.name, "red", "web")
        key = "replicasets.apps/web-1"
        await one.until(lambda: one.entry("web-1-0").root == key == one.entry("web-1-1").root)
        assert charged(one, key) == TWO
        assert one.root(WEB) is None
        assert set(one.drift) == {Cause.UNRESERVED}


async def test_pods_follow_their_replicaset_when_its_deployment_releases_it():
    async with full_world() as one, settling(one):
        await one.synced()
        web_with_pods(one)
        await one.until(lambda: charged(one, WEB) == TWO and one.entry("web-1-1") is not None)
        change(one, REPLICASETS, "web-1", metadata={"ownerReferences": []})
        key = "replicasets.apps/web-1"
        await one.until(lambda: one.entry("web-1-0").root == key == one.entry("web-1-1").root)
        assert charged(one, WEB) == TWO == charged(one, key)


async def test_pod_is_rechecked_when_its_owner_could_not_be_read(monkeypatch):
    monkeypatch.setattr(recheck_queue, "RETRY_SECONDS", 0.1)
    async with full_world() as one, settling(one):
        await one.synced()
        monkeypatch.setattr(one.context.parents, "get", lambda _: None)
        honest = one.cluster.get_object

        async def unread(*_):
            raise ClusterUnavailable("no answer")

        one.cluster.get_object = unread
        web_with_pods(one)
        await one.until(lambda: one.entry("web-1-0") is not None)
        assert one.entry("web-1-0").root == ""
        one.cluster.get_object = honest
        await one.until(lambda: {one.entry(f"web-1-{at}").root for at in range(2)} == {WEB})


async def test_recheck_charges_no_pod_that_may_be_deleted():
    async with full_world() as one, session_of(one) as session:
        gone = pod(one, "gone")
        await pod_reconciler(session, one.writer).recheck([msgspec.convert(gone, Pod)])
        await session.commands.flush()
        assert one.entry("gone") is None


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


async def test_pods_move_with_their_replicaset_when_it_is_adopted():
    async with full_world() as one, settling(one):
        await one.synced()
        web = create(one, DEPLOYMENTS, deployment("web"), "web-uid")
        lone = create(
            one, REPLICASETS, workload(REPLICASETS, "web-1", replicas=2, template=template())
        )
        key = "replicasets.apps/web-1"
        await one.until(lambda: charged(one, key) == TWO)
        pod(one, "p", lone)
        await one.until(lambda: one.entry("p") is not None)
        assert one.entry("p").root == key
        change(one, REPLICASETS, "web-1", metadata={"ownerReferences": [reference(web)]})
        await one.until(lambda: one.root(key) is None)
        await one.until(lambda: one.entry("p").root == WEB)
        assert lone["metadata"]["uid"] not in one.state.ended


async def test_unobserved_adoption_is_not_drift():
    async with full_world() as one:
        key = "replicasets.apps/web-1"
        async with settling(one):
            await one.synced()
            lone = workload(REPLICASETS, "web-1", replicas=2, template=template())
            create(one, REPLICASETS, lone)
            web = create(one, DEPLOYMENTS, deployment("web"))
            await one.until(lambda: charged(one, WEB) == TWO == charged(one, key))
        change(one, REPLICASETS, "web-1", metadata={"ownerReferences": [reference(web)]})
        one.counted.clear()
        async with settling(one):
            await one.until(lambda: one.root(key) is None)
            assert one.drift == {}


async def test_pods_of_a_deleted_deployment_keep_its_key_until_they_end():
    async with full_world() as one, settling(one):
        await one.synced()
        web_with_pods(one)
        await one.until(lambda: charged(one, WEB) == TWO and one.entry("web-1-1") is not None)
        one.server.delete(DEPLOYMENTS.name, "red", "web")
        await one.until(lambda: one.root(WEB) is None)
        change(one, REPLICASETS, "web-1", status={"replicas": 2})
        one.server.update("pods", "red", "web-1-0", status={"phase": "Running"})
        await one.until(lambda: ("pods", "red") in one.cluster.lists)
        pod(one, "last")
        await one.until(lambda: one.entry("last") is not None)
        assert one.entry("web-1-0").root == WEB
        assert one.root("replicasets.apps/web-1") is None
        for name in ("web-1-0", "web-1-1"):
            one.server.delete("pods", "red", name)
        await one.until(lambda: WEB not in one.state.namespaces[f"{CLUSTER}/red"].draws)


async def test_barred_object_has_no_root_and_its_pods_draw_from_it():
    async with full_world() as one, settling(one):
        await one.synced()
        web = create(one, DEPLOYMENTS, deployment("web"), "web-uid")
        key = "replicasets.apps/forged"
        await reserve(one, key, "forged-uid", root=BARRED)
        body = workload(REPLICASETS, "forged", web, replicas=2, template=template())
        forged = create(one, REPLICASETS, body, "forged-uid")
        await one.until(lambda: charged(one, key) == TWO)
        change(one, REPLICASETS, "forged", status={"replicas": 2})
        pod(one, "p", forged)
        await one.until(lambda: one.entry("p") is not None)
        assert one.root(key).root == BARRED
        assert one.entry("p").root == key


async def test_barred_pod_stays_barred_when_its_status_changes():
    async with full_world() as one, settling(one):
        await one.synced()
        made = web_with_pods(one, 1)
        await reserve(one, "pods/forged", "p-uid", ONE, root=BARRED)
        pod(one, "forged", made, "p-uid")
        await one.until(lambda: committed(one, "pods/forged") is not None)
        one.server.update("pods", "red", "forged", status={"phase": "Running"})
        pod(one, "last")
        await one.until(lambda: one.entry("last") is not None)
        assert committed(one, "pods/forged").root == BARRED


async def test_owner_is_ignored_when_its_uid_is_that_of_another_object():
    async with full_world() as one, settling(one):
        await one.synced()
        made = web_with_pods(one, 1)
        stranger = {**made, "metadata": {**made["metadata"], "uid": "another"}}
        pod(one, "p", stranger)
        await one.until(lambda: one.entry("p") is not None)
        assert one.entry("p").root == ""


async def test_jobs_of_a_jobset_are_parts_and_jobs_of_a_cronjob_are_roots():
    async with full_world() as one:
        one.cluster.kinds[JOBSETS.name] = JOBSETS
        async with settling(one):
            await one.synced()
            job = {"parallelism": 2, "completions": 2, "template": template()}
            replicated = [{"name": "w", "replicas": 1, "template": {"spec": job}}]
            jobset = create(one, JOBSETS, workload(JOBSETS, "js", replicatedJobs=replicated))
            create(one, JOBS, workload(JOBS, "js-w-0", jobset, **job))
            cron = {
                "apiVersion": "batch/v1",
                "kind": "CronJob",
                "metadata": {"name": "nightly", "uid": "cron-uid"},
            }
            create(one, JOBS, workload(JOBS, "nightly-1", cron, **job))
            await one.until(lambda: charged(one, "jobs.batch/nightly-1") == TWO)
            await one.until(lambda: charged(one, "jobsets.jobset.x-k8s.io/js") == TWO)
            assert one.root("jobs.batch/js-w-0") is None


async def test_orphan_is_not_charged_again_when_its_owner_is_deleted():
    async with full_world() as one, settling(one):
        await one.synced()
        gone = {**deployment("gone"), "metadata": {"name": "gone", "uid": "gone-uid"}}
        left = workload(REPLICASETS, "gone-1", gone, replicas=2, template=template())
        create(one, REPLICASETS, left)
        create(one, DEPLOYMENTS, deployment("last"))
        await one.until(lambda: charged(one, "deployments.apps/last") == TWO)
        await one.until(lambda: one.cluster.reads > 0)
        assert one.root("replicasets.apps/gone-1") is None


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
