"""The validating webhook charges each write exactly, or denies it with a reason."""

from typing import Any

import msgspec
import pytest
from support.builders.admission_reviews import (
    CORES,
    GPU,
    MEMORY,
    NAMESPACE,
    CoreLedger,
    SilentLedger,
    pod,
    recorded,
    review,
    serving,
)
from support.fakes.owner_cluster import around

from ledger.core.model.commands import Asker, Observe, Reserve
from ledger.core.model.denials import Denial, Reason
from ledger.core.model.traits import TERMINATING, Requirement
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.requests.gpu_types import CardType
from webhook.admission.protected_annotations import STAMP
from webhook.api.admission_settings import HAMI_IDENTITIES, AdmissionSettings
from webhook.context.refused_hami_accounts import RefusedHamiAccounts

CARD = {GPU: "1", MEMORY: "8k"}
DEMAND = {GPU: 1, MEMORY: 8000}
TRAITS = ("!best-effort",)
ALLOCATED = "hami.io/vgpu-devices-allocated"


async def answered(request: dict[str, Any], ledger: Any = None, **more: Any) -> dict[str, Any]:
    """Return the response to one review."""
    async with serving(ledger or CoreLedger(), **more) as service:
        return await service.post(request)


def causes(response: dict[str, Any]) -> list[tuple[str, str]]:
    """Return reason and field of every cause of a denial."""
    assert not response["allowed"]
    assert (response["status"]["code"], response["status"]["reason"]) == (403, "Forbidden")
    return [(one["reason"], one["field"]) for one in response["status"]["details"]["causes"]]


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


# Updates


def update(new: dict[str, Any], old: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return the review of an update on version 5."""
    old["metadata"]["resourceVersion"] = "5"
    return review(new, old, operation="UPDATE", **more)


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
        for _, one in recorded(case, "validate"):
            if one["request"]["kind"]["kind"] == "Pod" and one["request"]["operation"] == "CREATE":
                continue
            uid = one["request"]["uid"]
            assert await service.post(one) == {"uid": uid, "allowed": True}
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
            for webhook, one in recorded(case):
                assert (await service.post(one, webhook))["allowed"], case
    assert len(ledger.commands()) == 4, "the last review is a repetition of the first"
    assert ledger.used() == {f"limits.{MEMORY}": 3 * 8000, f"limits.{GPU}": 3}


async def test_a_recorded_creation_of_what_exists_adds_nothing() -> None:
    ledger = CoreLedger()
    ledger.limit(memory=8000)
    async with serving(ledger) as service:
        for case in ("pod-create", "pod-create-exists"):
            for _, one in recorded(case, "validate"):
                assert (await service.post(one))["allowed"], case
    assert ledger.used() == {f"limits.{MEMORY}": 8000}


async def test_recorded_bytes_for_mebibytes_are_refused() -> None:
    [(_, one)] = recorded("pod-create-gpumem-16Gi", "validate")
    response = await answered(one)
    assert causes(response) == [("InvalidQuantity", f"spec.containers[0].resources[{MEMORY}]")]
    assert "write 16384 for 16Gi" in response["status"]["message"]


async def test_a_recorded_dry_run_is_allowed_and_not_charged() -> None:
    ledger = CoreLedger()
    ledger.limit(memory=8000)
    [(_, one)] = recorded("pod-create-dry-run", "validate")
    assert (await answered(one, ledger))["allowed"]
    assert ledger.used() == {f"limits.{MEMORY}": 0}


async def test_recorded_concurrent_patches_open_no_hold() -> None:
    ledger = CoreLedger()
    async with serving(ledger) as service:
        for _, one in recorded("pod-update-six-concurrent-patches", "validate"):
            assert (await service.post(one))["allowed"]
    assert ledger.submitted == []


# Cards of unknown size


async def test_a_share_of_an_unknown_card_is_refused_where_memory_is_limited() -> None:
    [(_, one)] = recorded("pod-create-percentage", "validate")
    ledger = CoreLedger()
    ledger.limit(memory=100_000)
    response = await answered(one, ledger)
    assert causes(response) == [("CardMemoryUnknown", MEMORY)]
    unlimited = CoreLedger()
    unlimited.limit(cards=10)
    assert (await answered(one, unlimited))["allowed"]


async def test_a_share_of_a_card_of_assumed_size_is_charged() -> None:
    ledger = CoreLedger()
    ledger.limit(memory=100_000)
    [(_, one)] = recorded("pod-create-percentage", "validate")
    assert (await answered(one, ledger, rules=DemandRules(worst_card_memory=1000)))["allowed"]
    assert 0 < ledger.used()[f"limits.{MEMORY}"] <= 1000


async def test_a_resize_of_a_whole_card_pod_is_not_refused_for_its_old_share() -> None:
    rules = DemandRules(managed=("cpu",))
    old, new = pod({GPU: "1", "cpu": "1"}), pod({GPU: "1", "cpu": "2"})
    assert (await answered(update(new, old, subResource="resize"), rules=rules))["allowed"]


# Permissions


@pytest.mark.parametrize(
    "metadata",
    [
        {"annotations": {ALLOCATED: "GPU-1,NVIDIA,8000,0:;"}},
        {"annotations": {"hami.io/bind-phase": "success"}},
        {"annotations": {"hami.io/amd-devices-to-allocate": "x"}},
        {"annotations": {"gpuledger.io/anything": "x"}},
        {"labels": {"hami.io/vgpu-node": "n1"}},
    ],
)
@pytest.mark.parametrize("limits", [CARD, {}])
async def test_users_may_not_write_allocations(
    metadata: dict[str, Any], limits: dict[str, str]
) -> None:
    claimed = pod(limits, **metadata)
    for request in (review(claimed), update(claimed, pod(limits)), update(pod(limits), claimed)):
        assert causes(await answered(request))[0][0] == "ReservedAnnotation"
        request["request"]["userInfo"]["username"] = HAMI_IDENTITIES[0]
        assert (await answered(request))["allowed"]
    assert (await answered(update(pod(limits, **metadata), pod(limits, **metadata))))["allowed"]


CLAIM: dict[str, Any] = {"annotations": {ALLOCATED: "GPU-1,NVIDIA,8000,0:;"}}
BINDING = {"apiVersion": "v1", "kind": "Binding", "target": {"kind": "Node", "name": "n1"}}


HAMI_ELSEWHERE = "system:serviceaccount:gpu-tools:vgpu-hami-scheduler"


@pytest.mark.parametrize(
    ("username", "operation", "may", "named"),
    [
        (HAMI_ELSEWHERE, "UPDATE", True, True),
        (HAMI_ELSEWHERE, "UPDATE", False, False),
        (HAMI_ELSEWHERE, "CREATE", True, False),
        (HAMI_ELSEWHERE, "dry run", True, False),
        ("kubernetes-admin", "UPDATE", True, False),
    ],
)
async def test_a_refused_account_with_hamis_rights_is_named_with_the_setting(
    username: str, operation: str, may: bool, named: bool
) -> None:
    async def may_allocate(_: str) -> bool:
        return may

    request = update(pod(CARD, **CLAIM), pod(CARD))
    if operation == "CREATE":
        request = review(pod(CARD, **CLAIM))
    request["request"]["dryRun"] = operation == "dry run"
    request["request"]["userInfo"]["username"] = username
    async with serving(CoreLedger()) as service:
        context = service.validating.context
        context.refused_hami_accounts = RefusedHamiAccounts(may_allocate)
        answer = await service.post(request)
        assert causes(answer)[0][0] == "ReservedAnnotation"
        advice = "add it to the setting trusted_identities"
        assert (advice in answer["status"]["message"]) == named
        problems = [one for one in context.problems() if username in one]
        assert len(problems) == len(context.refused_hami_accounts) == named


def status_of(new: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
    return review(new, old, operation="UPDATE", subResource="status")


def binding(**metadata: Any) -> list[dict[str, Any]]:
    """Return the reviews of a Binding, by each of the paths that it can be posted to."""
    manifest = {**BINDING, "metadata": {"name": "p", **metadata}}
    bare = {"group": "", "version": "v1", "resource": "bindings"}
    return [review(manifest, subResource="binding"), review(manifest, resource=bare)]


@pytest.mark.parametrize(
    "request_",
    [
        status_of(pod({}, **CLAIM), pod({})),
        status_of(pod({}), pod({}, **CLAIM)),
        *binding(**CLAIM),
        *binding(labels={"hami.io/vgpu-node": "n1"}),
    ],
)
async def test_no_other_request_may_write_allocations(request_: dict[str, Any]) -> None:
    ledger = CoreLedger()
    assert causes(await answered(request_, ledger))[0][0] == "ReservedAnnotation"
    request_["request"]["userInfo"]["username"] = HAMI_IDENTITIES[0]
    assert (await answered(request_, ledger))["allowed"]
    assert ledger.submitted == []


async def test_statuses_and_bindings_that_claim_nothing_pass() -> None:
    written = pod({}, **CLAIM, labels={"app": "a"})
    for one in (status_of(written, pod({}, **CLAIM)), *binding(annotations={"own": "x"})):
        assert (await answered(one))["allowed"]


@pytest.mark.parametrize(("identity", "username"), [("", ""), ("own", "ada"), ("", "ada")])
async def test_a_user_without_a_name_is_not_the_service(identity: str, username: str) -> None:
    async with serving(CoreLedger()) as service:
        service.validating.context.identity = identity
        for one in binding(**CLAIM):
            one["request"]["userInfo"]["username"] = username
            assert not (await service.post(one))["allowed"]


async def test_the_service_may_write_allocations() -> None:
    async with serving(CoreLedger()) as service:
        service.validating.context.identity = "ada"
        for one in binding(**CLAIM):
            assert (await service.post(one))["allowed"]


@pytest.mark.parametrize(
    "annotation",
    ["hami.io/gpu-scheduler-policy", "hami.io/node-scheduler-policy", "nvidia.com/use-gputype"],
)
async def test_users_may_write_preferences(annotation: str) -> None:
    assert (await answered(review(pod(CARD, annotations={annotation: "binpack"}))))["allowed"]


# Annotations of earlier versions


async def test_a_copied_stamp_is_accepted_and_warned_about_and_frees_nothing() -> None:
    ledger = CoreLedger()
    ledger.limit(cards=1)
    async with serving(ledger) as service:
        first, second = (
            pod(CARD, name=f"g-{n}", uid=f"u-{n}", annotations={STAMP: "s"}) for n in "ab"
        )
        answer = await service.post(review(first))
        assert answer["allowed"]
        assert STAMP in answer["warnings"][0]
        assert causes(await service.post(review(second)))[0][0] == "QuotaExceeded"


async def test_a_stamp_may_be_changed_and_taken_away() -> None:
    stamped, other = (pod(CARD, annotations={STAMP: text}) for text in "ab")
    for new, old in ((stamped, other), (pod(CARD), stamped), (stamped, pod(CARD))):
        assert (await answered(update(new, old)))["allowed"]


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
    one = pod(CARD, annotations={POLICY: "binpak"})
    expected = [("InvalidPolicy", f"metadata.annotations[{POLICY}]")]
    assert causes(await answered(review(one), ledger)) == expected
    assert ledger.commands() == []
    assert (await answered(review(pod({}, annotations={POLICY: "binpak"}))))["allowed"]


async def test_a_pod_that_exists_with_such_a_policy_can_still_be_labelled() -> None:
    old, new = (pod(CARD, annotations={POLICY: "binpak"}) for _ in range(2))
    new["metadata"]["labels"] = {"a": "b"}
    assert (await answered(update(new, old)))["allowed"]
    new["metadata"]["annotations"] = {POLICY: "spraed"}
    assert causes(await answered(update(new, old)))
