"""The mode of a namespace changes verdicts, and exempt users may exceed limits."""

from typing import Any

import pytest
from support.builders.admission_reviews import GPU, MEMORY, CoreLedger, pod, review, serving
from support.fakes.owner_cluster import (
    DEPLOYMENTS,
    Manifest,
    OwnerCluster,
    around,
    manifest,
    of,
    template,
)

from ledger.core.model.commands import Reserve
from ledger.core.model.denials import Denial, Reason
from webhook.context.namespace_policies import NamespacePolicy

CARD = {GPU: "1", MEMORY: "8k"}
WEB = manifest(DEPLOYMENTS, "web", replicas=2)
POD = review(pod(CARD))
DEPLOYMENT = review(WEB, **of(DEPLOYMENTS))


async def answered(
    request: dict[str, Any], ledger: CoreLedger, *, webhook: str = "validate", **policy: Any
) -> dict[str, Any]:
    context = around(ledger, OwnerCluster(), default=NamespacePolicy(**policy))
    async with serving(ledger, context=context) as service:
        return await service.post(request, webhook)


def full() -> CoreLedger:
    ledger = CoreLedger()
    ledger.limit(cards=0)
    return ledger


@pytest.mark.parametrize("creation", [POD, DEPLOYMENT], ids=["pod", "deployment"])
async def test_in_mode_enforce_there_is_no_way_around_a_limit(creation: dict[str, Any]) -> None:
    ledger = full()
    assert not (await answered(creation, ledger))["allowed"]
    assert ledger.used() == {f"limits.{GPU}": 0}


@pytest.mark.parametrize("creation", [POD, DEPLOYMENT], ids=["pod", "deployment"])
async def test_request_over_the_limit_is_charged_with_a_warning_in_mode_warn(
    creation: dict[str, Any],
) -> None:
    ledger = full()
    response = await answered(creation, ledger, mode="warn")
    assert response["allowed"]
    assert response["auditAnnotations"] == {"decision-d-1": "Reserved"}
    [warning] = response["warnings"]
    assert warning.startswith("over the limit: namespace team is not allowed ")
    assert "[ExceedsLimit; decision " in warning
    assert ledger.used()[f"limits.{GPU}"] > 0
    assert [command.forced for command in ledger.commands() if isinstance(command, Reserve)] == [
        False,
        True,
    ]


@pytest.mark.parametrize("creation", [POD, DEPLOYMENT], ids=["pod", "deployment"])
async def test_no_warning_in_mode_warn_when_there_is_room(creation: dict[str, Any]) -> None:
    response = await answered(creation, CoreLedger(), mode="warn")
    assert "warnings" not in response


@pytest.mark.parametrize("creation", [POD, DEPLOYMENT], ids=["pod", "deployment"])
@pytest.mark.parametrize("webhook", ["validate", "mutate"])
async def test_ledger_is_not_asked_and_nothing_changes_in_mode_off(
    creation: dict[str, Any], webhook: str
) -> None:
    ledger = full()
    response = await answered(creation, ledger, webhook=webhook, mode="off")
    assert response == {"uid": "call-1", "allowed": True}
    assert ledger.submitted == []


@pytest.mark.parametrize(
    ("user", "allowed"),
    [
        ({"username": "rescuer"}, True),
        ({"username": "ada", "groups": ["a", "ops"]}, True),
        ({"username": "ops", "groups": ["rescuer"]}, False),
    ],
)
async def test_who_is_exempt_exceeds_the_limit_and_is_charged(
    user: dict[str, Any], allowed: bool
) -> None:
    ledger = full()
    request = review(pod(CARD), userInfo=user)
    response = await answered(request, ledger, exempt_users=("rescuer",), exempt_groups=("ops",))
    assert response["allowed"] is allowed
    assert ledger.used() == {f"limits.{GPU}": int(allowed)}


@pytest.mark.parametrize(("says", "own"), [("none", True), ("namespace", False)])
async def test_denial_names_other_namespaces_by_policy(says: str, own: bool) -> None:
    for creation in (POD, DEPLOYMENT):
        ledger = full()
        await answered(creation, ledger, foreign_holders=says)
        assert [asked.own_holders for asked, _ in ledger.submitted] == [own]


async def test_a_ledger_that_refuses_also_what_is_forced_is_asked_no_third_time() -> None:
    ledger = CoreLedger()
    ledger.answer = Denial(Reason.QUOTA_EXCEEDED, "no", transient=True)
    assert not (await answered(POD, ledger, exempt_users=("ada",)))["allowed"]
    assert len(ledger.submitted) == 2


async def test_a_dry_run_over_the_limit_changes_nothing_in_mode_warn() -> None:
    ledger = full()
    response = await answered(review(pod(CARD), dryRun=True), ledger, mode="warn")
    assert response["allowed"]
    assert response["warnings"]
    assert ledger.commands() == []


async def test_being_exempt_makes_no_sense_of_what_makes_none() -> None:
    wrong = review(pod({GPU: "1", MEMORY: "16Gi"}))
    assert not (await answered(wrong, CoreLedger(), exempt_users=("ada",)))["allowed"]
    response = await answered(wrong, CoreLedger(), mode="warn")
    assert response["allowed"]
    assert response["warnings"][0].startswith("not refused here: ")
    assert response["warnings"][0].endswith("[InvalidQuantity]")


def allocated() -> Manifest:
    return pod(CARD, annotations={"hami.io/vgpu-devices-allocated": "GPU-1:;"})


@pytest.mark.parametrize("mode", ["enforce", "warn", "off"])
async def test_what_guards_the_records_is_refused_in_every_mode(mode: str) -> None:
    ledger = CoreLedger()
    response = await answered(review(allocated()), ledger, mode=mode)
    assert response["status"]["details"]["causes"][0]["reason"] == "ReservedAnnotation"
    assert ledger.submitted == []


@pytest.mark.parametrize(("mode", "allowed"), [("enforce", False), ("warn", True)])
async def test_a_ledger_that_is_down_holds_up_only_where_limits_hold(
    mode: str, allowed: bool
) -> None:
    ledger = CoreLedger()
    ledger.answer = Denial(Reason.LEDGER_UNAVAILABLE, "down", transient=True)
    for creation in (POD, DEPLOYMENT):
        assert (await answered(creation, ledger, mode=mode))["allowed"] is allowed


async def test_exempt_user_is_refused_when_the_ledger_is_down() -> None:
    ledger = CoreLedger()
    ledger.answer = Denial(Reason.LEDGER_UNAVAILABLE, "down", transient=True)
    assert not (await answered(POD, ledger, exempt_users=("ada",)))["allowed"]
    assert len(ledger.submitted) == 1


NO_POD_MISSING = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}


async def test_strict_surge_does_not_refuse_exempt_users() -> None:
    ledger = CoreLedger()
    ledger.limit(cards=2)
    old = manifest(DEPLOYMENTS, "web", replicas=2, strategy=NO_POD_MISSING)
    new = manifest(DEPLOYMENTS, "web", replicas=2, strategy=NO_POD_MISSING)
    new["spec"]["template"] = template(version="2")
    update = review(new, old, operation="UPDATE", **of(DEPLOYMENTS))
    assert not (await answered(update, ledger, surge="strict"))["allowed"]
    assert (await answered(update, ledger, surge="strict", exempt_users=("ada",)))["allowed"]
