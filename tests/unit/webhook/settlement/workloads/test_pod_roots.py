"""The roots of pods: owners that are adopted, deleted, barred or unreadable."""

import msgspec
from support.builders.settled_workloads import (
    ONE,
    TWO,
    WEB,
    change,
    charged,
    committed,
    create,
    pod,
    reserve,
    web_with_pods,
)
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
    full_world,
    pod_reconciler,
    session_of,
    settling,
)

from ledger.core.model.commands import BARRED
from ledger.core.model.events import Cause
from ledger.kube.api.cluster_errors import ClusterUnavailable
from ledger.kube.api.objects import Pod
from webhook.settlement import pod_recheck_queue


async def test_orphans_move_to_the_remaining_replicaset():
    async with full_world() as world, settling(world):
        await world.synced()
        web_with_pods(world)
        await world.until(lambda: charged(world, WEB) == TWO and world.entry("web-1-1") is not None)
        change(world, REPLICASETS, "web-1", metadata={"ownerReferences": []})
        world.server.delete(DEPLOYMENTS.name, "red", "web")
        key = "replicasets.apps/web-1"
        await world.until(lambda: world.entry("web-1-0").root == key == world.entry("web-1-1").root)
        assert charged(world, key) == TWO
        assert world.root(WEB) is None
        assert set(world.drift) == {Cause.UNRESERVED}


async def test_pods_follow_their_replicaset_when_its_deployment_releases_it():
    async with full_world() as world, settling(world):
        await world.synced()
        web_with_pods(world)
        await world.until(lambda: charged(world, WEB) == TWO and world.entry("web-1-1") is not None)
        change(world, REPLICASETS, "web-1", metadata={"ownerReferences": []})
        key = "replicasets.apps/web-1"
        await world.until(lambda: world.entry("web-1-0").root == key == world.entry("web-1-1").root)
        assert charged(world, WEB) == TWO == charged(world, key)


async def test_pod_is_rechecked_when_its_owner_could_not_be_read(monkeypatch):
    monkeypatch.setattr(pod_recheck_queue, "RETRY_SECONDS", 0.1)
    async with full_world() as world, settling(world):
        await world.synced()
        monkeypatch.setattr(world.context.parents, "get", lambda _: None)
        honest = world.cluster.get_object

        async def unread(*_):
            raise ClusterUnavailable("no answer")

        world.cluster.get_object = unread
        web_with_pods(world)
        await world.until(lambda: world.entry("web-1-0") is not None)
        assert world.entry("web-1-0").root == ""
        world.cluster.get_object = honest
        await world.until(lambda: {world.entry(f"web-1-{at}").root for at in range(2)} == {WEB})


async def test_recheck_charges_no_pod_that_may_be_deleted():
    async with full_world() as world, session_of(world) as session:
        gone = pod(world, "gone")
        await pod_reconciler(session, world.writer).recheck([msgspec.convert(gone, Pod)])
        await session.commands.flush()
        assert world.entry("gone") is None


async def test_pods_move_with_their_replicaset_when_it_is_adopted():
    async with full_world() as world, settling(world):
        await world.synced()
        web = create(world, DEPLOYMENTS, deployment("web"), "web-uid")
        lone = create(
            world, REPLICASETS, workload(REPLICASETS, "web-1", replicas=2, template=template())
        )
        key = "replicasets.apps/web-1"
        await world.until(lambda: charged(world, key) == TWO)
        pod(world, "p", lone)
        await world.until(lambda: world.entry("p") is not None)
        assert world.entry("p").root == key
        change(world, REPLICASETS, "web-1", metadata={"ownerReferences": [reference(web)]})
        await world.until(lambda: world.root(key) is None)
        await world.until(lambda: world.entry("p").root == WEB)
        assert lone["metadata"]["uid"] not in world.state.ended


async def test_unobserved_adoption_is_not_drift():
    async with full_world() as world:
        key = "replicasets.apps/web-1"
        async with settling(world):
            await world.synced()
            lone = workload(REPLICASETS, "web-1", replicas=2, template=template())
            create(world, REPLICASETS, lone)
            web = create(world, DEPLOYMENTS, deployment("web"))
            await world.until(lambda: charged(world, WEB) == TWO == charged(world, key))
        change(world, REPLICASETS, "web-1", metadata={"ownerReferences": [reference(web)]})
        world.counted.clear()
        async with settling(world):
            await world.until(lambda: world.root(key) is None)
            assert world.drift == {}


async def test_pods_of_a_deleted_deployment_keep_its_key_until_they_end():
    async with full_world() as world, settling(world):
        await world.synced()
        web_with_pods(world)
        await world.until(lambda: charged(world, WEB) == TWO and world.entry("web-1-1") is not None)
        world.server.delete(DEPLOYMENTS.name, "red", "web")
        await world.until(lambda: world.root(WEB) is None)
        change(world, REPLICASETS, "web-1", status={"replicas": 2})
        world.server.update("pods", "red", "web-1-0", status={"phase": "Running"})
        await world.until(lambda: ("pods", "red") in world.cluster.lists)
        pod(world, "last")
        await world.until(lambda: world.entry("last") is not None)
        assert world.entry("web-1-0").root == WEB
        assert world.root("replicasets.apps/web-1") is None
        for name in ("web-1-0", "web-1-1"):
            world.server.delete("pods", "red", name)
        await world.until(lambda: WEB not in world.state.namespaces[f"{CLUSTER}/red"].draws)


async def test_barred_object_has_no_root_and_its_pods_draw_from_it():
    async with full_world() as world, settling(world):
        await world.synced()
        web = create(world, DEPLOYMENTS, deployment("web"), "web-uid")
        key = "replicasets.apps/forged"
        await reserve(world, key, "forged-uid", root=BARRED)
        body = workload(REPLICASETS, "forged", web, replicas=2, template=template())
        forged = create(world, REPLICASETS, body, "forged-uid")
        await world.until(lambda: charged(world, key) == TWO)
        change(world, REPLICASETS, "forged", status={"replicas": 2})
        pod(world, "p", forged)
        await world.until(lambda: world.entry("p") is not None)
        assert world.root(key).root == BARRED
        assert world.entry("p").root == key


async def test_barred_pod_stays_barred_when_its_status_changes():
    async with full_world() as world, settling(world):
        await world.synced()
        made = web_with_pods(world, 1)
        await reserve(world, "pods/forged", "p-uid", ONE, root=BARRED)
        pod(world, "forged", made, "p-uid")
        await world.until(lambda: committed(world, "pods/forged") is not None)
        world.server.update("pods", "red", "forged", status={"phase": "Running"})
        pod(world, "last")
        await world.until(lambda: world.entry("last") is not None)
        assert committed(world, "pods/forged").root == BARRED


async def test_owner_is_ignored_when_its_uid_is_that_of_another_object():
    async with full_world() as world, settling(world):
        await world.synced()
        made = web_with_pods(world, 1)
        stranger = {**made, "metadata": {**made["metadata"], "uid": "another"}}
        pod(world, "p", stranger)
        await world.until(lambda: world.entry("p") is not None)
        assert world.entry("p").root == ""


async def test_jobs_of_a_jobset_are_parts_and_jobs_of_a_cronjob_are_roots():
    async with full_world() as world:
        world.cluster.kinds[JOBSETS.name] = JOBSETS
        async with settling(world):
            await world.synced()
            job = {"parallelism": 2, "completions": 2, "template": template()}
            replicated = [{"name": "w", "replicas": 1, "template": {"spec": job}}]
            jobset = create(world, JOBSETS, workload(JOBSETS, "js", replicatedJobs=replicated))
            create(world, JOBS, workload(JOBS, "js-w-0", jobset, **job))
            cron = {
                "apiVersion": "batch/v1",
                "kind": "CronJob",
                "metadata": {"name": "nightly", "uid": "cron-uid"},
            }
            create(world, JOBS, workload(JOBS, "nightly-1", cron, **job))
            await world.until(lambda: charged(world, "jobs.batch/nightly-1") == TWO)
            await world.until(lambda: charged(world, "jobsets.jobset.x-k8s.io/js") == TWO)
            assert world.root("jobs.batch/js-w-0") is None


async def test_orphan_is_not_charged_again_when_its_owner_is_deleted():
    async with full_world() as world, settling(world):
        await world.synced()
        gone = {**deployment("gone"), "metadata": {"name": "gone", "uid": "gone-uid"}}
        left = workload(REPLICASETS, "gone-1", gone, replicas=2, template=template())
        create(world, REPLICASETS, left)
        create(world, DEPLOYMENTS, deployment("last"))
        await world.until(lambda: charged(world, "deployments.apps/last") == TWO)
        await world.until(lambda: world.cluster.reads > 0)
        assert world.root("replicasets.apps/gone-1") is None
