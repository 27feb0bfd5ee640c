"""The mutating webhook completes new pods, and never decides."""

import base64
import json
from typing import Any

import pytest
from support.builders.admission_reviews import (
    CORES,
    GPU,
    MEMORY,
    CoreLedger,
    patched,
    pod,
    recorded,
    review,
    serving,
)
from support.fakes.owner_cluster import around

from ledger.kube.api.pod_gates import GATE
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.vendors.vendors import select_vendors
from webhook.context.admission_settings import AdmissionSettings
from webhook.context.card_schedulers import CardSchedulers
from webhook.context.namespace_policies import NamespacePolicy

PERCENTAGE = "nvidia.com/gpumem-percentage"


def new_pod(
    limits: dict[str, Any], *, scheduler: str = "gpuledger-scheduler", **metadata: Any
) -> dict[str, Any]:
    """Return a pod as the mutating webhook sees it: without uid, with a scheduler's name."""
    manifest = pod(limits, **metadata)
    del manifest["metadata"]["uid"]
    manifest["spec"]["schedulerName"] = scheduler
    return manifest


async def mutated(
    thing: dict[str, Any],
    rules: DemandRules | None = None,
    treated: NamespacePolicy | None = None,
    **policy: Any,
) -> dict[str, Any]:
    """Return a pod as the mutating webhook leaves it."""
    ledger = CoreLedger()
    async with serving(
        ledger,
        rules=rules,
        policy=AdmissionSettings(**policy),
        context=around(ledger, default=treated) if treated is not None else None,
    ) as service:
        response = await service.post(review(thing), "mutate")
        assert response["allowed"]
        assert not ledger.submitted, "the mutating webhook never asks the ledger"
    if "patch" not in response:
        return thing
    assert response["patchType"] == "JSONPatch"
    return patched(thing, json.loads(base64.b64decode(response["patch"])))


def limits(thing: dict[str, Any]) -> dict[str, str]:
    """Return the limits of the first container."""
    amounts: dict[str, str] = thing["spec"]["containers"][0]["resources"]["limits"]
    return amounts


async def test_a_pod_that_names_all_is_left_as_it_is() -> None:
    before = new_pod({GPU: "1", MEMORY: "8k"}, annotations={"gpuledger.io/stamp": "copied.1.x"})
    assert await mutated(before) == before


async def test_a_missing_count_is_written_down() -> None:
    assert limits(await mutated(new_pod({MEMORY: "4k"}))) == {MEMORY: "4k", GPU: "1"}


async def test_a_count_is_written_where_only_requests_were_given() -> None:
    before = new_pod({})
    before["spec"]["containers"][0]["resources"] = {"requests": {MEMORY: "4k"}}
    assert limits(await mutated(before)) == {GPU: "1"}


@pytest.mark.parametrize("whole", [{GPU: "2"}, {GPU: "2", PERCENTAGE: "100"}])
async def test_a_whole_card_gets_all_its_cores(whole: dict[str, str]) -> None:
    assert limits(await mutated(new_pod(whole))) == {**whole, CORES: "100"}


async def test_init_containers_are_completed_too() -> None:
    before = new_pod({})
    before["spec"]["initContainers"] = [
        {"name": "plain"},
        {"name": "init", "resources": {"limits": {GPU: "1"}}},
    ]
    after = await mutated(before)
    assert after["spec"]["initContainers"][1]["resources"]["limits"] == {GPU: "1", CORES: "100"}


DEFAULT = "default-scheduler"
CARDS = CardSchedulers("cards")


@pytest.mark.parametrize("name", [DEFAULT, "cards"])
async def test_a_second_pass_changes_nothing(name: str) -> None:
    once = await mutated(new_pod({GPU: "1"}, scheduler=name), schedulers=CARDS)
    twice = await mutated(once, schedulers=CARDS)
    assert once == twice


@pytest.mark.parametrize("name", [DEFAULT, ""])
async def test_a_configured_scheduler_takes_pods_of_the_default_one(name: str) -> None:
    before = new_pod({GPU: "1"}, scheduler=name)
    after = await mutated(before, schedulers=CARDS)
    assert after["spec"]["schedulerName"] == "cards"
    assert limits(after) == {GPU: "1", CORES: "100"}
    assert await mutated(before) == before


@pytest.mark.parametrize(
    "name", [DEFAULT, "", "other", "default", "Gpuledger-Scheduler", "hami-scheduler "]
)
@pytest.mark.parametrize("asked", [{GPU: "1"}, {MEMORY: "4k"}], ids=["card", "share"])
async def test_a_pod_of_a_scheduler_that_does_not_place_on_cards_is_not_touched(
    name: str, asked: dict[str, str]
) -> None:
    before = new_pod(asked, scheduler=name)
    assert await mutated(before) == before


@pytest.mark.parametrize(
    ("name", "schedulers"),
    [
        ("gpuledger-scheduler", CardSchedulers()),
        ("hami-scheduler", CardSchedulers()),
        ("hami-scheduler", CARDS),
        ("cards", CARDS),
        ("mine", CardSchedulers(further=("mine", "yours"))),
        (DEFAULT, CardSchedulers(further=(DEFAULT,))),
        ("", CardSchedulers(further=(DEFAULT,))),
    ],
)
async def test_pod_of_a_card_scheduler_is_completed_and_keeps_it(
    name: str, schedulers: CardSchedulers
) -> None:
    after = await mutated(new_pod({GPU: "1"}, scheduler=name), schedulers=schedulers)
    assert limits(after) == {GPU: "1", CORES: "100"}
    assert after["spec"]["schedulerName"] == name


async def test_a_scheduler_that_a_pod_names_stays() -> None:
    before = new_pod({GPU: "1"}, scheduler="other")
    assert await mutated(before, schedulers=CARDS) == before


@pytest.mark.parametrize("name", [DEFAULT, "cards", "gpuledger-scheduler"])
async def test_a_pod_that_names_its_node_is_not_touched(name: str) -> None:
    before = new_pod({GPU: "1"}, scheduler=name)
    before["spec"]["nodeName"] = "n1"
    assert await mutated(before, schedulers=CARDS) == before


async def test_pod_of_vendors_without_completion_stays_as_it_is() -> None:
    rules = DemandRules(vendors=select_vendors(["hygon", "mthreads"]))
    whole = {"hygon.com/dcunum": "1"}
    share = {"mthreads.com/sgpu-core": "2"}
    for asked in (whole, share):
        after = await mutated(new_pod(asked), rules)
        assert limits(after) == asked


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"cpu": "1"},
        {GPU: "0"},
        {MEMORY: "0"},
        {"nvidia.com/gpucores": "0"},
        {GPU: "1", MEMORY: "16Gi"},
        {GPU: "x"},
    ],
)
async def test_what_asks_for_nothing_or_nonsense_passes_untouched(asked: dict[str, str]) -> None:
    before = new_pod(asked)
    assert await mutated(before) == before


PENDING = NamespacePolicy(on_exceeded="pending", exempt_users=("rescuer",))


async def gates(thing: dict[str, Any], treated: NamespacePolicy = PENDING) -> list[str] | None:
    """Return the names of the gates that a pod ends up with."""
    listed = (await mutated(thing, treated=treated))["spec"].get("schedulingGates")
    return None if listed is None else [gate["name"] for gate in listed]


@pytest.mark.parametrize("name", ["gpuledger-scheduler", DEFAULT, "other"])
async def test_pod_of_any_scheduler_gets_the_gate_when_pods_wait(name: str) -> None:
    assert await gates(new_pod({GPU: "1"}, scheduler=name)) == [GATE]


async def test_other_gates_stay_and_ours_is_added_once() -> None:
    before = new_pod({GPU: "1"})
    before["spec"]["schedulingGates"] = [{"name": "example.com/mine"}]
    assert await gates(before) == ["example.com/mine", GATE]
    before["spec"]["schedulingGates"].append({"name": GATE})
    assert await gates(before) == ["example.com/mine", GATE]


async def test_a_pod_that_names_its_node_cannot_wait() -> None:
    before = new_pod({GPU: "1"})
    before["spec"]["nodeName"] = "n1"
    assert await gates(before) is None


@pytest.mark.parametrize(
    "treated",
    [
        NamespacePolicy(),
        NamespacePolicy(on_exceeded="pending", mode="warn"),
        NamespacePolicy(on_exceeded="pending", mode="off"),
        NamespacePolicy(on_exceeded="pending", exempt_users=("ada",)),
    ],
    ids=["deny", "warn", "off", "exempt"],
)
async def test_pod_does_not_wait_when_it_would_not_be_refused(treated: NamespacePolicy) -> None:
    assert await gates(new_pod({GPU: "1"}), treated) is None


async def test_a_pod_that_asks_for_nothing_does_not_wait() -> None:
    assert await gates(new_pod({"cpu": "1"})) is None


async def test_only_creations_of_pods_are_touched() -> None:
    thing = pod({GPU: "1"}, resourceVersion="5")
    async with serving(CoreLedger()) as service:
        for other in (
            review(thing, thing, operation="UPDATE"),
            review(thing, subResource="binding"),
            review(thing, resource={"group": "apps", "version": "v1", "resource": "deployments"}),
            review(None, thing, operation="DELETE"),
        ):
            assert "patch" not in await service.post(other, "mutate")


async def test_a_recorded_creation_is_completed_before_it_has_a_name() -> None:
    async with serving(CoreLedger()) as service:
        [(_, first)] = recorded("pod-create-generate-name", "mutate")[:1]
        for given in first["request"]["object"]["spec"]["containers"][0]["resources"].values():
            del given[GPU]
        first["request"]["object"]["spec"]["schedulerName"] = "hami-scheduler"
        response = await service.post(first, "mutate")
    patch = json.loads(base64.b64decode(response["patch"]))
    assert [step["path"] for step in patch] == [
        "/spec/containers/0/resources/limits/nvidia.com~1gpu"
    ]
