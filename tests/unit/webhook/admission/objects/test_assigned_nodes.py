"""A pod that names its node goes around the scheduler that would choose its cards."""

from typing import Any

import pytest
from support.builders.admission_reviews import GPU, MEMORY, CoreLedger, pod, review, serving
from support.fakes.owner_cluster import around

from webhook.context.admission_settings import AdmissionSettings
from webhook.context.card_schedulers import CardSchedulers
from webhook.context.namespace_policies import NamespacePolicy

CARD = {GPU: "1", MEMORY: "8k"}
DEFAULT = "default-scheduler"
GIVEN = CardSchedulers("cards")


def named(scheduler: str | None, limits: dict[str, str] | None = None) -> dict[str, Any]:
    """Return a pod for a node and a scheduler, or without a scheduler's name."""
    assigned = pod(CARD if limits is None else limits)
    assigned["spec"]["nodeName"] = "n1"
    if scheduler is not None:
        assigned["spec"]["schedulerName"] = scheduler
    return assigned


async def answered(request: Any, ledger: CoreLedger | None = None, **more: Any) -> Any:
    async with serving(ledger or CoreLedger(), **more) as service:
        return await service.post(request)


@pytest.mark.parametrize(
    ("scheduler", "schedulers", "by"),
    [
        ("gpuledger-scheduler", CardSchedulers(), "gpuledger-scheduler"),
        ("hami-scheduler", CardSchedulers(), "hami-scheduler"),
        ("cards", GIVEN, "cards"),
        (DEFAULT, GIVEN, "cards"),
        ("", GIVEN, "cards"),
        (None, GIVEN, "cards"),
        ("mine", CardSchedulers(further=("mine",)), "mine"),
        (DEFAULT, CardSchedulers(further=(DEFAULT,)), DEFAULT),
        ("", CardSchedulers(further=(DEFAULT,)), DEFAULT),
    ],
)
async def test_a_new_pod_names_no_node_where_its_scheduler_places_on_cards(
    scheduler: str | None, schedulers: CardSchedulers, by: str
) -> None:
    ledger = CoreLedger()
    policy = AdmissionSettings(schedulers=schedulers)
    response = await answered(review(named(scheduler)), ledger, policy=policy)
    assert not response["allowed"]
    [cause] = response["status"]["details"]["causes"]
    assert (cause["reason"], cause["field"]) == ("NodeAssigned", "spec.nodeName")
    message = response["status"]["message"]
    assert f"spec.nodeName is n1, so {by} could not" in message
    assert "spec.nodeSelector" in message
    assert ledger.submitted == []


@pytest.mark.parametrize(
    ("scheduler", "schedulers"),
    [
        (DEFAULT, CardSchedulers()),
        ("", CardSchedulers()),
        (None, CardSchedulers()),
        ("other", GIVEN),
        ("Gpuledger-Scheduler", CardSchedulers()),
    ],
)
async def test_elsewhere_a_pod_with_a_node_is_charged_with_a_warning(
    scheduler: str | None, schedulers: CardSchedulers
) -> None:
    ledger = CoreLedger()
    policy = AdmissionSettings(schedulers=schedulers)
    response = await answered(review(named(scheduler)), ledger, policy=policy)
    assert response["allowed"]
    [text] = response["warnings"]
    assert "spec.nodeName" in text
    assert len(text) <= 120
    assert ledger.commands()


async def test_a_pod_to_which_no_scheduler_is_given_may_name_its_node():
    """HAMi's label keeps the mutating webhook from it, so it stays with the default scheduler."""
    policy = AdmissionSettings(schedulers=GIVEN)
    for scheduler, label, allowed in (
        (DEFAULT, "ignore", True),
        ("cards", "ignore", False),
        (DEFAULT, "Ignore", False),
    ):
        labelled = named(scheduler)
        labelled["metadata"]["labels"] = {"hami.io/webhook": label}
        ledger = CoreLedger()
        response = await answered(review(labelled), ledger, policy=policy)
        assert response["allowed"] is allowed, response
        assert bool(ledger.commands()) is allowed


@pytest.mark.parametrize("limits", [{}, {"cpu": "1"}, {GPU: "0"}])
async def test_a_pod_that_takes_no_card_may_name_its_node(limits: dict[str, str]) -> None:
    response = await answered(
        review(named(DEFAULT, limits)), policy=AdmissionSettings(schedulers=GIVEN)
    )
    assert response == {"uid": "call-1", "allowed": True}


async def test_a_pod_that_was_bound_can_be_updated() -> None:
    new, old = named("cards"), named("cards")
    new["metadata"] |= {"labels": {"a": "b"}, "resourceVersion": "2"}
    old["metadata"]["resourceVersion"] = "1"
    request = review(new, old, operation="UPDATE")
    assert (await answered(request, policy=AdmissionSettings(schedulers=GIVEN)))["allowed"]


async def test_a_static_pod_that_its_kubelet_shows_is_charged() -> None:
    ledger = CoreLedger()
    request = review(named(DEFAULT), username="system:node:n1")
    policy = AdmissionSettings(schedulers=GIVEN)
    assert not (await answered(request, ledger, policy=policy))["allowed"]
    request["request"]["userInfo"]["groups"] = ["system:nodes", "system:authenticated"]
    assert (await answered(request, ledger, policy=policy))["allowed"]
    assert ledger.commands()


@pytest.mark.parametrize("mode", ["warn", "off"])
async def test_where_nothing_is_refused_a_node_may_be_named(mode: Any) -> None:
    ledger = CoreLedger()
    where = around(ledger, default=NamespacePolicy(mode=mode))
    policy = AdmissionSettings(schedulers=GIVEN)
    response = await answered(review(named("cards")), ledger, policy=policy, context=where)
    assert response["allowed"]
    assert any("NodeAssigned" in warning for warning in response.get("warnings", ())) == (
        mode == "warn"
    )
