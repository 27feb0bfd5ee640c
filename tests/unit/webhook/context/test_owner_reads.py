"""Owners that cannot be read: one list waits for all of them together, not for each."""

import asyncio
import contextlib

import msgspec
import pytest
from support.fakes.apiserver import pod_body
from support.fakes.full_cluster import (
    REPLICASETS,
    FullWorld,
    full_world,
    reference,
    template,
    workload,
)
from support.harness.settlement import CLUSTER, RULES

from ledger.core.model.commands import Reserve
from ledger.kube.api.objects import Pod
from ledger.log.command_queue import CommandQueue
from ledger.log.ledger import Accepted
from webhook.context.cluster_and_context import Beyond
from webhook.settlement.attempt_ages import AttemptAges
from webhook.settlement.invalid_objects import InvalidObjects
from webhook.settlement.pod_reconciler import PodReconciler
from webhook.settlement.settlement_session import SettlementSession, SettlementSettings, Site

NAMESPACE = f"{CLUSTER}/red"
PODS = 20


async def never(*_: object) -> None:
    await asyncio.Event().wait()


async def owned_pods(one: FullWorld) -> list[Pod]:
    """Return pods of as many owners that nobody remembers, all of them known to the ledger."""
    found = []
    for number in range(PODS):
        owner = workload(REPLICASETS, f"rs-{number}", replicas=1, template=template())
        owner["metadata"]["uid"] = f"rs-uid-{number}"
        body = pod_body(f"p{number}", gpucores=0)
        body["metadata"]["ownerReferences"] = [reference(owner)]
        pod = msgspec.convert(one.server.create("pods", "red", body), Pod)
        reserve = Reserve(NAMESPACE, f"pods/p{number}", pod.metadata.uid, {"nvidia.com/gpu": 1})
        assert isinstance(await one.writer.submit(reserve), Accepted)
        found.append(pod)
    return found


@pytest.mark.parametrize("looking", ["again", "behind the barrier"])
async def test_the_owners_of_one_list_are_waited_for_together(looking, monkeypatch):
    monkeypatch.setattr("webhook.settlement.pod_reconciler.LIST_READ_SECONDS", 0.5)
    async with full_world() as one:
        one.every.get_object = never
        site = Site(one.every, CLUSTER, Beyond(one.every, one.context))
        courier = CommandQueue(one.writer)
        tenure = SettlementSession(
            one.writer, site, SettlementSettings(rules=RULES), lambda: 0, courier
        )
        pods, found = PodReconciler(tenure, AttemptAges(), InvalidObjects()), await owned_pods(one)
        task = asyncio.create_task(courier.run())
        async with asyncio.timeout(0.5 * PODS / 2):
            if looking == "again":
                await pods.look_again(found)
            else:
                looked = await pods.look(NAMESPACE, [f"pods/p{number}" for number in range(PODS)])
                assert len(looked.seen) == PODS
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
