"""Annotations of allocations may be written by trusted identities and the service only."""

from typing import Any

import pytest
from support.builders.admission_reviews import (
    GPU,
    MEMORY,
    CoreLedger,
    answered,
    causes,
    pod,
    review,
    serving,
    update,
)

from webhook.admission.reserved_annotations import STAMP
from webhook.context.admission_settings import HAMI_IDENTITIES
from webhook.context.refused_hami_accounts import RefusedHamiAccounts

CARD = {GPU: "1", MEMORY: "8k"}
DEMAND = {GPU: 1, MEMORY: 8000}
TRAITS = ("!best-effort",)
ALLOCATED = "hami.io/vgpu-devices-allocated"


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
        problems = [problem for problem in context.problems() if username in problem]
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
    for request in (status_of(written, pod({}, **CLAIM)), *binding(annotations={"own": "x"})):
        assert (await answered(request))["allowed"]


@pytest.mark.parametrize(("identity", "username"), [("", ""), ("own", "ada"), ("", "ada")])
async def test_a_user_without_a_name_is_not_the_service(identity: str, username: str) -> None:
    async with serving(CoreLedger()) as service:
        service.validating.context.identity = identity
        for request in binding(**CLAIM):
            request["request"]["userInfo"]["username"] = username
            assert not (await service.post(request))["allowed"]


async def test_the_service_may_write_allocations() -> None:
    async with serving(CoreLedger()) as service:
        service.validating.context.identity = "ada"
        for request in binding(**CLAIM):
            assert (await service.post(request))["allowed"]


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
