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
from ledger.kube.api.errors import ClusterUnavailable
from ledger.kube.api.objects import Pod
from webhook.settlement import recheck_queue


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
