"""The mutating webhook completes pods and writes nothing else."""

import base64
import copy
import json

from support.builders.admission_reviews import GPU, CoreLedger, patched, pod, review, serving
from support.fakes.owner_cluster import around

from webhook.context.admission_settings import AdmissionSettings
from webhook.context.card_schedulers import CardSchedulers
from webhook.context.namespace_policies import NamespacePolicy

PRIORITY = "nvidia.com/priority"


async def test_only_resources_scheduler_and_gate_are_written() -> None:
    before = pod({GPU: "1", PRIORITY: "0"})
    del before["metadata"]["uid"]
    before["spec"]["containers"] += [{"name": "idle", "env": [{"name": "A", "value": "b"}]}]
    ledger = CoreLedger()
    waiting = around(ledger, default=NamespacePolicy(on_exceeded="pending"))
    policy = AdmissionSettings(schedulers=CardSchedulers(given="gpuledger-scheduler"))
    async with serving(ledger, policy=policy, context=waiting) as service:
        answer = await service.post(review(copy.deepcopy(before)), "mutate")
    patch = json.loads(base64.b64decode(answer["patch"]))
    limits = "/spec/containers/0/resources/limits"
    assert {step["path"] for step in patch} == {
        "/spec/schedulingGates",
        f"{limits}/nvidia.com~1gpucores",
        "/spec/schedulerName",
    }
    after = patched(before, patch)
    assert after["spec"]["containers"][1] == before["spec"]["containers"][1]
    assert "env" not in after["spec"]["containers"][0]
    assert "runtimeClassName" not in after["spec"]
