"""An update of a pod is charged for what it adds, and passes when it adds nothing."""

import msgspec
import pytest
from support.builders.admission_reviews import (
    GPU,
    MEMORY,
    NAMESPACE,
    CoreLedger,
    answered,
    causes,
    pod,
    review,
    serving,
    update,
)

from ledger.core.model.commands import Asker, Observe, Reserve
from ledger.core.model.denials import Denial, Reason
from ledger.core.model.traits import TERMINATING, Requirement
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.requests.gpu_type_annotation import CardType

CARD = {GPU: "1", MEMORY: "8k"}
DEMAND = {GPU: 1, MEMORY: 8000}
TRAITS = ("!best-effort",)
ALLOCATED = "hami.io/vgpu-devices-allocated"


async def test_an_update_that_asks_for_more_first_shows_its_base() -> None:
    ledger = CoreLedger()
    ledger.limit(memory=20_000)
    bigger = pod({GPU: "1", MEMORY: "9k"})
    assert (await answered(update(bigger, pod(CARD), subResource="resize"), ledger))["allowed"]
    more = {GPU: 1, MEMORY: 9000}
    assert ledger.commands() == [
        Observe(NAMESPACE, "pods/p", "u-1", 5, DEMAND, "ada", traits=TRAITS),
        Reserve(
            NAMESPACE,
            "pods/p",
            "u-1",
            more,
            5,
            owner="ada",
            owner_holds_max=64,
            actor="ada",
            traits=TRAITS,
            asker=Asker("Pod", cards=1),
        ),
    ]
    assert ledger.used() == {f"limits.{MEMORY}": 9000}


async def test_memory_is_reported_by_card_when_one_container_has_several() -> None:
    ledger = CoreLedger()
    ledger.limit(memory=16_000)
    asking = pod({GPU: "3", MEMORY: "6000"})
    message = (await answered(review(asking), ledger))["status"]["message"]
    assert "would need 18000 MiB (3 GPUs \N{MULTIPLICATION SIGN} 6000), quota" in message
    other = {"name": "other", "resources": {"limits": {GPU: "1", MEMORY: "9000"}}}
    asking["spec"]["containers"].append(other)
    message = (await answered(review(asking), ledger))["status"]["message"]
    assert "would need 27000 MiB, quota" in message


async def test_only_the_increase_of_an_update_is_checked() -> None:
    ledger = CoreLedger()
    ledger.limit(memory=9000)
    response = await answered(update(pod({GPU: "1", MEMORY: "9001"}), pod(CARD)), ledger)
    assert "allows 9000, 8000 are used" in response["status"]["message"]


@pytest.mark.parametrize("limits", [CARD, {GPU: "1", MEMORY: "1"}, {}])
async def test_an_update_that_asks_for_no_more_does_not_need_the_ledger(
    limits: dict[str, str],
) -> None:
    ledger = CoreLedger()
    ledger.answer = Denial(Reason.LEDGER_UNAVAILABLE, "down", transient=True)
    assert (await answered(update(pod(limits, labels={"a": "b"}), pod(CARD)), ledger))["allowed"]
    assert ledger.submitted == []


@pytest.mark.parametrize(("memory", "allowed"), [(7999, False), (8000, True)])
async def test_pod_that_gains_a_deadline_needs_room_when_a_quota_counts_it(
    memory: int, allowed: bool
) -> None:
    ledger = CoreLedger()
    ledger.limit(selects=(Requirement(TERMINATING, "Exists"),), memory=memory)
    assert (await answered(review(pod(CARD)), ledger))["allowed"]
    ending = pod(CARD)
    ending["spec"]["activeDeadlineSeconds"] = 60
    assert (await answered(update(ending, pod(CARD)), ledger))["allowed"] is allowed


async def test_a_deadline_that_changes_or_is_of_no_card_does_not_need_the_ledger() -> None:
    ledger = CoreLedger()
    for limits, before in ((CARD, 90), ({GPU: "0"}, None)):
        ending, stored = pod(limits), pod(limits)
        ending["spec"]["activeDeadlineSeconds"] = 60
        stored["spec"]["activeDeadlineSeconds"] = before
        assert (await answered(update(ending, stored), ledger))["allowed"]
    assert ledger.submitted == []


async def test_invalid_stored_pod_can_be_labelled() -> None:
    wrong = {GPU: "1", MEMORY: "16Gi"}
    assert (await answered(update(pod(wrong, labels={"a": "b"}), pod(wrong))))["allowed"]
    assert causes(await answered(update(pod(wrong), pod(CARD))))[0][0] == "InvalidQuantity"
    assert (await answered(update(pod(CARD), pod(wrong))))["allowed"]


async def test_an_update_is_refused_when_its_base_cannot_be_shown() -> None:
    ledger = CoreLedger()
    ledger.answer = Denial(Reason.LEDGER_STOPPED, "stopped", transient=True)
    response = await answered(update(pod({GPU: "2", MEMORY: "1"}), pod(CARD)), ledger)
    assert causes(response)[0][0] == "LedgerStopped"
    assert [type(command) for command in ledger.commands()] == [Observe]


@pytest.mark.parametrize("version", [None, "", "0", "x5", "1_0", "9" * 40, "\u0665"])
async def test_an_update_without_a_usable_version_names_the_field(version: str | None) -> None:
    request = update(pod({GPU: "2"}), pod(CARD))
    request["request"]["oldObject"]["metadata"]["resourceVersion"] = version or ""
    async with serving(CoreLedger()) as service:
        answer = await service.client.post("/admission/validate", json=request)
    assert answer.status_code == 400
    assert answer.json()["field"] == "$.request.oldObject.metadata.resourceVersion"


TYPED = DemandRules(types=(CardType("v100"), CardType("t4")))


@pytest.mark.parametrize(
    ("before", "after", "allowed"),
    [
        ({"nvidia.com/gpu-type": "v100"}, {"nvidia.com/gpu-type": "t4"}, False),
        ({"nvidia.com/gpu-type": "v100,t4"}, {"nvidia.com/gpu-type": "t4"}, False),
        ({"nvidia.com/gpu-type": "v100"}, {}, False),
        ({}, {"nvidia.com/gpu-type": "t4"}, False),
        ({"nvidia.com/gpu-type": "v100"}, {"nvidia.com/use-gputype": "V100"}, True),
        ({"nvidia.com/gpu-type": "v100"}, {"nvidia.com/gpu-type": "v100", "note": "x"}, True),
        ({"nvidia.com/gpu-type": "none"}, {"nvidia.com/gpu-type": "t4"}, True),
    ],
)
async def test_a_pod_that_counts_as_of_a_type_of_cards_stays_of_that_type(
    before: dict[str, str], after: dict[str, str], allowed: bool
) -> None:
    old = pod({GPU: "1"}, annotations=before)
    response = await answered(update(pod({GPU: "1"}, annotations=after), old), rules=TYPED)
    assert response["allowed"] is allowed
    if not allowed:
        assert causes(response) == [("GpuTypeChanged", "metadata.annotations[nvidia.com/gpu-type]")]


async def test_a_pod_that_takes_no_cards_may_name_any_type() -> None:
    old = pod({"cpu": "1"}, annotations={"nvidia.com/gpu-type": "v100"})
    rules = msgspec.structs.replace(TYPED, managed=("cpu",))
    assert (await answered(update(pod({"cpu": "1"}), old), rules=rules))["allowed"]
