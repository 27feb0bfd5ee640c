"""The validating webhook charges each write exactly, or denies it with a reason."""

from typing import Any

import pytest
from support.builders.admission_reviews import (
    CORES,
    GPU,
    MEMORY,
    NAMESPACE,
    CoreLedger,
    SilentLedger,
    answered,
    causes,
    pod,
    recorded,
    review,
    serving,
    update,
)
from support.fakes.owner_cluster import around

from ledger.core.model.commands import Asker, Reserve
from ledger.core.model.denials import Denial, Reason
from ledger.kube.requests.demand_rules import DemandRules
from webhook.context.admission_settings import AdmissionSettings

CARD = {GPU: "1", MEMORY: "8k"}
DEMAND = {GPU: 1, MEMORY: 8000}
TRAITS = ("!best-effort",)
ALLOCATED = "hami.io/vgpu-devices-allocated"


async def test_a_creation_reserves_for_its_uid() -> None:
    ledger = CoreLedger()
    owners = [
        {"kind": "Other", "name": "x", "uid": "no"},
        {"kind": "ReplicaSet", "name": "rs", "uid": "r-1", "controller": True},
    ]
    response = await answered(review(pod(CARD, ownerReferences=owners)), ledger)
    assert response["allowed"]
    assert response["auditAnnotations"] == {"decision-d-1": "Reserved"}
    assert ledger.commands() == [
        Reserve(
            NAMESPACE,
            "pods/p",
            "u-1",
            DEMAND,
            owner="ada",
            owner_holds_max=64,
            actor="ada",
            traits=TRAITS,
            asker=Asker("Pod", cards=1),
        )
    ]


async def test_without_a_controller_the_user_owns_the_hold() -> None:
    ledger = CoreLedger()
    await answered(review(pod(CARD), username="u" * 1000), ledger)
    [command] = ledger.commands()
    assert isinstance(command, Reserve)
    assert command.owner == command.actor == "u" * 256


async def test_no_room_is_a_forbidden_with_numbers_for_people_and_programs() -> None:
    ledger = CoreLedger()
    ledger.limit(memory=7000, cards=0)
    response = await answered(review(pod(CARD)), ledger)
    assert causes(response) == [
        ("ExceedsLimit", f"limits.{GPU}"),
        ("ExceedsLimit", f"limits.{MEMORY}"),
    ]
    message = response["status"]["message"]
    assert "allows 0, nothing is used" in message
    assert "[ExceedsLimit; decision d-1]" in message
    assert response["auditAnnotations"] == {"decision-d-1": "ExceedsLimit"}
    assert response["status"]["details"]["name"] == "p"


@pytest.mark.parametrize("limits", [None, {"cpu": "1"}, {GPU: "0"}])
async def test_a_pod_without_cards_never_reaches_the_ledger(limits: dict[str, str]) -> None:
    ledger = CoreLedger()
    response = await answered(review(pod(limits)), ledger)
    assert response == {"uid": "call-1", "allowed": True}
    assert ledger.submitted == []


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({GPU: "1", MEMORY: "16Gi"}, "InvalidQuantity"),
        ({GPU: "1", MEMORY: "500m"}, "InvalidQuantity"),
        ({GPU: "1", MEMORY: "-5"}, "InvalidQuantity"),
        ({GPU: "1", "nvidia.com/gpumem-percentage": "150"}, "InvalidPercentage"),
        ({GPU: "1", CORES: "101"}, "InvalidCores"),
        ({GPU: "0", MEMORY: "1"}, "InvalidCount"),
    ],
)
async def test_what_cannot_be_understood_is_refused_without_the_ledger(
    limits: dict[str, str], reason: str
) -> None:
    ledger = CoreLedger()
    assert causes(await answered(review(pod(limits)), ledger))[0][0] == reason
    assert ledger.submitted == []


async def test_a_dry_run_is_decided_and_changes_nothing() -> None:
    ledger = CoreLedger()
    ledger.limit(cards=1)
    async with serving(ledger) as service:
        for _ in range(3):
            assert (await service.post(review(pod(CARD), dryRun=True)))["allowed"]
        two = pod({GPU: "2", MEMORY: "1"})
        assert not (await service.post(review(two, dryRun=True)))["allowed"]
        old, new = pod(CARD, resourceVersion="5"), pod({GPU: "2", MEMORY: "1"})
        await service.post(review(new, old, operation="UPDATE", dryRun=True))
    assert ledger.commands() == []
    assert ledger.used() == {f"limits.{GPU}": 0}


# Requests that pass untouched


@pytest.mark.parametrize(
    "case",
    [
        "pod-delete-graceful",
        "pod-deletecollection",
        "pod-binding",
        "pod-eviction",
        "pod-ephemeral-container",
        "pod-status-update",
        "pod-status-succeeded",
        "pod-update-labels",
        "deployment-create",
        "deployment-scale-put",
        "jobset-create",
        "resourcequota-create",
    ],
)
async def test_recorded_reviews_that_are_not_ours_pass_untouched(case: str) -> None:
    ledger = CoreLedger()
    async with serving(ledger) as service:
        for _, request in recorded(case, "validate"):
            if (
                request["request"]["kind"]["kind"] == "Pod"
                and request["request"]["operation"] == "CREATE"
            ):
                continue
            uid = request["request"]["uid"]
            assert await service.post(request) == {"uid": uid, "allowed": True}
    assert ledger.submitted == []


async def test_unknown_operations_and_kinds_pass_untouched() -> None:
    for request in (
        review(pod(CARD), operation="CONNECT"),
        review(pod(CARD), resource={"group": "x", "version": "v1", "resource": "pods"}),
        review(pod(CARD), subResource="resize"),
        update(pod(CARD), pod({}), subResource="status"),
        update(pod(CARD), pod({}), subResource="ephemeralcontainers"),
    ):
        assert await answered(request) == {"uid": "call-1", "allowed": True}


# Recordings


async def test_recorded_creations_are_charged_once_each() -> None:
    ledger = CoreLedger()
    ledger.limit(memory=10**6, cards=100)
    async with serving(ledger) as service:
        for case in ("pod-create", "pod-create-generate-name", "pod-create-third", "pod-create"):
            for webhook, request in recorded(case):
                assert (await service.post(request, webhook))["allowed"], case
    assert len(ledger.commands()) == 4, "the last review is a repetition of the first"
    assert ledger.used() == {f"limits.{MEMORY}": 3 * 8000, f"limits.{GPU}": 3}


async def test_a_recorded_creation_of_what_exists_adds_nothing() -> None:
    ledger = CoreLedger()
    ledger.limit(memory=8000)
    async with serving(ledger) as service:
        for case in ("pod-create", "pod-create-exists"):
            for _, request in recorded(case, "validate"):
                assert (await service.post(request))["allowed"], case
    assert ledger.used() == {f"limits.{MEMORY}": 8000}


async def test_recorded_bytes_for_mebibytes_are_refused() -> None:
    [(_, request)] = recorded("pod-create-gpumem-16Gi", "validate")
    response = await answered(request)
    assert causes(response) == [("InvalidQuantity", f"spec.containers[0].resources[{MEMORY}]")]
    assert "write 16384 for 16Gi" in response["status"]["message"]


async def test_a_recorded_dry_run_is_allowed_and_not_charged() -> None:
    ledger = CoreLedger()
    ledger.limit(memory=8000)
    [(_, request)] = recorded("pod-create-dry-run", "validate")
    assert (await answered(request, ledger))["allowed"]
    assert ledger.used() == {f"limits.{MEMORY}": 0}


async def test_recorded_concurrent_patches_open_no_hold() -> None:
    ledger = CoreLedger()
    async with serving(ledger) as service:
        for _, request in recorded("pod-update-six-concurrent-patches", "validate"):
            assert (await service.post(request))["allowed"]
    assert ledger.submitted == []


# Cards of unknown size


async def test_a_share_of_an_unknown_card_is_refused_where_memory_is_limited() -> None:
    [(_, request)] = recorded("pod-create-percentage", "validate")
    ledger = CoreLedger()
    ledger.limit(memory=100_000)
    response = await answered(request, ledger)
    assert causes(response) == [("CardMemoryUnknown", MEMORY)]
    unlimited = CoreLedger()
    unlimited.limit(cards=10)
    assert (await answered(request, unlimited))["allowed"]


async def test_a_share_of_a_card_of_assumed_size_is_charged() -> None:
    ledger = CoreLedger()
    ledger.limit(memory=100_000)
    [(_, request)] = recorded("pod-create-percentage", "validate")
    assert (await answered(request, ledger, rules=DemandRules(worst_card_memory=1000)))["allowed"]
    assert 0 < ledger.used()[f"limits.{MEMORY}"] <= 1000


async def test_a_resize_of_a_whole_card_pod_is_not_refused_for_its_old_share() -> None:
    rules = DemandRules(managed=("cpu",))
    old, new = pod({GPU: "1", "cpu": "1"}), pod({GPU: "1", "cpu": "2"})
    assert (await answered(update(new, old, subResource="resize"), rules=rules))["allowed"]


# Bounds of owners, and names of attempts


def owned(kind: str = "ReplicaSet", uid: str = "u-rs", version: str = "apps/v1") -> dict[str, Any]:
    reference = {"apiVersion": version, "kind": kind, "name": "web", "uid": uid, "controller": True}
    return pod(CARD, ownerReferences=[reference])


async def owner_of(thing: dict[str, Any], username: str) -> str:
    """Return the owner that bounds the unsettled creations of a pod."""
    ledger = CoreLedger()
    async with serving(ledger, context=around(ledger)) as service:
        assert (await service.post(review(thing, username=username)))["allowed"]
    [command] = ledger.commands()
    assert isinstance(command, Reserve)
    return command.owner


async def test_what_a_controller_makes_is_bounded_for_each_of_its_objects() -> None:
    controller = "system:serviceaccount:kube-system:replicaset-controller"
    assert await owner_of(owned(), controller) == "ReplicaSet/web/u-rs"


@pytest.mark.parametrize("thing", [owned(), owned("Other", version="example.com/v1")], ids=range(2))
async def test_who_names_an_owner_falsely_is_bounded_as_a_user(thing: dict[str, Any]) -> None:
    assert await owner_of(thing, "eve") == "eve"


async def test_a_creation_without_a_uid_is_refused_with_what_to_set() -> None:
    response = await answered(review(pod(CARD, uid="")))
    assert causes(response) == [("UidMissing", "metadata.uid")]
    assert "ValidatingWebhookConfiguration" in response["status"]["message"]


async def test_what_is_let_in_uncharged_is_not_called_reserved_in_the_audit_log() -> None:
    ledger = CoreLedger()
    ledger.answer = Denial(Reason.LEDGER_UNAVAILABLE, "not now", transient=True, decision="d-9")
    response = await answered(
        review(pod(CARD)), ledger, policy=AdmissionSettings(allow_unavailable=True)
    )
    assert response["auditAnnotations"] == {"decision-d-9": "LedgerUnavailable"}


@pytest.mark.parametrize(
    ("field", "text"),
    [
        *(("uid", text) for text in ("x/y", "x" * 254)),
        *((field, text) for field in ("name", "namespace") for text in ("", "x/y", "x" * 254)),
    ],
)
async def test_an_attempt_that_cannot_be_named_is_refused(field: str, text: str) -> None:
    thing = pod(CARD, **{field: text})
    response = await answered(review(thing, name="", namespace=""))
    assert causes(response) == [("InvalidReview", f"metadata.{field}")]


# A ledger that cannot decide


@pytest.mark.parametrize(
    "reason",
    [Reason.LEDGER_UNAVAILABLE, Reason.LEDGER_STOPPED, Reason.OVERLOADED, Reason.LOG_FULL],
)
async def test_unavailable_ledger_denies_unless_settings_allow(
    reason: Reason,
) -> None:
    ledger = CoreLedger()
    ledger.answer = Denial(reason, "not now", transient=True)
    assert causes(await answered(review(pod(CARD)), ledger))[0][0] == reason
    response = await answered(
        review(pod(CARD)), ledger, policy=AdmissionSettings(allow_unavailable=True)
    )
    assert response["allowed"]
    assert "without being charged" in response["warnings"][0]


async def test_allowing_what_cannot_be_decided_allows_nothing_else() -> None:
    ledger = CoreLedger()
    ledger.limit(cards=0)
    policy = AdmissionSettings(allow_unavailable=True)
    assert causes(await answered(review(pod(CARD)), ledger, policy=policy))


async def test_a_silent_ledger_is_an_unavailable_one() -> None:
    response = await answered(
        review(pod(CARD)), SilentLedger(), policy=AdmissionSettings(deadline=0.05)
    )
    assert causes(response)[0][0] == "LedgerUnavailable"
    assert "within 0.05 s" in response["status"]["message"]


POLICY = "hami.io/gpu-scheduler-policy"


async def test_unknown_scheduling_policy_is_refused() -> None:
    ledger = CoreLedger()
    new_pod = pod(CARD, annotations={POLICY: "binpak"})
    expected = [("InvalidPolicy", f"metadata.annotations[{POLICY}]")]
    assert causes(await answered(review(new_pod), ledger)) == expected
    assert ledger.commands() == []
    assert (await answered(review(pod({}, annotations={POLICY: "binpak"}))))["allowed"]


async def test_a_pod_that_exists_with_such_a_policy_can_still_be_labelled() -> None:
    old, new = (pod(CARD, annotations={POLICY: "binpak"}) for _ in range(2))
    new["metadata"]["labels"] = {"a": "b"}
    assert (await answered(update(new, old)))["allowed"]
    new["metadata"]["annotations"] = {POLICY: "spraed"}
    assert causes(await answered(update(new, old)))
