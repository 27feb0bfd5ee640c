"""Owners that cannot be read: one list waits for all of them together, not for each."""

import asyncio

import msgspec
import pytest
from support.fakes.apiserver import pod_body
from support.fakes.full_cluster import REPLICASETS, reference, template, workload
from support.harness.settlement import CLUSTER, World, full_world, pod_reconciler, session_of

from ledger.core.model.commands import Reserve
from ledger.kube.api.objects import Pod
from ledger.log.ledger_port import Accepted

NAMESPACE = f"{CLUSTER}/red"
PODS = 20


async def never(*_: object) -> None:
    await asyncio.Event().wait()


async def owned_pods(world: World) -> list[Pod]:
    """Return pods of as many uncached owners, all of them charged by the ledger."""
    pods = []
    for number in range(PODS):
        owner = workload(REPLICASETS, f"rs-{number}", replicas=1, template=template())
        owner["metadata"]["uid"] = f"rs-uid-{number}"
        body = pod_body(f"p{number}", gpucores=0)
        body["metadata"]["ownerReferences"] = [reference(owner)]
        pod = msgspec.convert(world.server.create("pods", "red", body), Pod)
        reserve = Reserve(NAMESPACE, f"pods/p{number}", pod.metadata.uid, {"nvidia.com/gpu": 1})
        assert isinstance(await world.writer.submit(reserve), Accepted)
        pods.append(pod)
    return pods


@pytest.mark.parametrize("looking", ["again", "behind the barrier"])
async def test_the_owners_of_one_list_are_waited_for_together(looking, monkeypatch):
    monkeypatch.setattr("webhook.settlement.pod_reconciler.LIST_READ_SECONDS", 0.5)
    async with full_world() as world, session_of(world) as session:
        monkeypatch.setattr(world.cluster, "get_object", never)
        pods, owned = pod_reconciler(session, world.writer), await owned_pods(world)
        keys = [f"pods/p{number}" for number in range(PODS)]
        async with asyncio.timeout(0.5 * PODS / 2):
            if looking == "again":
                await pods.recheck(owned)
            else:
                listed = await pods.list_keys(NAMESPACE, keys)
                assert len(listed.seen) == PODS
