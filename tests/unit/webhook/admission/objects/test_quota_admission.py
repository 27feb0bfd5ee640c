"""Limits and policies: what makes no sense is refused, what does nothing is commented on."""

from typing import Any

import pytest
from support.builders.admission_reviews import CoreLedger, recorded, review, serving
from support.fakes.owner_cluster import CATALOG, around, of

from ledger.kube.api.api_resources import POLICIES, QUOTAS, UNIVERSE_QUOTAS, Resource
from webhook.context.admission_settings import AdmissionSettings
from webhook.context.namespace_policies import NamespacePolicy

MEM = "limits.nvidia.com/gpumem"


async def warned(resource: Resource, spec: dict[str, Any], **more: Any) -> tuple[str, ...]:
    """Return the warnings that the creation of an object leads to."""
    thing = {"metadata": {"name": "q", "namespace": "team", "uid": "u"}, "spec": spec}
    return await answered(review(thing, **of(resource), **more))


async def answered(
    request: dict[str, Any], policy: AdmissionSettings | None = None
) -> tuple[str, ...]:
    response = await responded(request, policy)
    assert response["allowed"]
    return tuple(response.get("warnings", ()))


async def responded(
    request: dict[str, Any], policy: AdmissionSettings | None = None, **namespace: Any
) -> dict[str, Any]:
    ledger = CoreLedger()
    context = around(ledger, default=NamespacePolicy(**namespace))
    async with serving(ledger, policy=policy, context=context) as service:
        response = await service.post(request)
    assert ledger.submitted == []
    return response


def quota(value: str, **more: Any) -> dict[str, Any]:
    """Return the review of a ResourceQuota that limits card memory so."""
    thing = {"metadata": {"name": "q", "namespace": "team"}, "spec": {"hard": {MEM: value}}}
    return review(thing, **of(QUOTAS), **more)


async def test_a_quota_in_bytes_is_refused_with_the_number_to_write() -> None:
    response = await responded(quota("16Gi"))
    assert not response["allowed"]
    message = response["status"]["message"]
    assert f"{MEM} is 16Gi, which has a binary suffix and so counts bytes" in message
    assert "nvidia.com/gpumem counts MiB: write 16384 for 16Gi" in message
    [cause] = response["status"]["details"]["causes"]
    assert (cause["reason"], cause["field"]) == ("InvalidQuantity", f"spec.hard[{MEM}]")


@pytest.mark.parametrize("value", ["16384", "16k", "16G", "1e3"])
async def test_a_plain_number_is_let_in_however_the_api_server_writes_it(value: str) -> None:
    assert (await responded(quota(value)))["allowed"]


async def test_every_amount_in_bytes_is_named_at_once() -> None:
    spec = {"hard": {MEM: "16Gi", "requests.nvidia.com/gpumem": "8Gi", "limits.memory": "1Gi"}}
    response = await responded(review({"metadata": {}, "spec": spec}, **of(QUOTAS)))
    message = response["status"]["message"]
    assert "write 16384 for 16Gi; nvidia.com/gpumem counts MiB: write 8192 for 8Gi" in message
    assert "limits.memory" not in message


@pytest.mark.parametrize(("before", "allowed"), [("16Gi", True), ("8Gi", False), ("16k", False)])
async def test_a_stored_quota_in_bytes_may_be_changed_otherwise(
    before: str, *, allowed: bool
) -> None:
    now = quota("16Gi", operation="UPDATE")
    old = quota(before)["request"]["object"]
    now["request"]["oldObject"] = old
    assert (await responded(now))["allowed"] == allowed


@pytest.mark.parametrize("mode", ["warn", "off"])
async def test_where_nothing_is_refused_a_quota_in_bytes_is_warned_about(mode: str) -> None:
    response = await responded(quota("16Gi"), mode=mode)
    assert response["allowed"]
    [warning] = response["warnings"]
    assert warning.startswith("not refused here: ")
    assert warning.endswith(". [InvalidQuantity]")


async def test_a_universe_quota_in_bytes_is_refused_in_every_mode() -> None:
    request = review({"metadata": {}, "spec": {"hard": {MEM: "16Gi"}}}, **of(UNIVERSE_QUOTAS))
    request["request"]["namespace"] = ""
    assert not (await responded(request, mode="off"))["allowed"]


async def test_a_policy_whose_default_quota_is_in_bytes_is_refused() -> None:
    spec = {"defaultQuota": {"hard": {MEM: "16Gi"}}}
    response = await responded(review({"metadata": {}, "spec": spec}, **of(POLICIES)))
    [cause] = response["status"]["details"]["causes"]
    assert cause["field"] == f"spec.defaultQuota.hard[{MEM}]"
    assert "write 16384 for 16Gi" in response["status"]["message"]


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
async def test_unenforced_key_is_named(operation: str) -> None:
    [warning] = await warned(QUOTAS, {"hard": {"nvidia.com/gpumem": "8"}}, operation=operation)
    assert (
        warning
        == "nvidia.com/gpumem: Kubernetes does not enforce this key; write limits.nvidia.com/gpumem"
    )


@pytest.mark.parametrize(
    "hard", [{"limits.nvidia.com/gpumem": "8"}, {"pods": "3", "limits.cpu": "2"}, None]
)
async def test_a_quota_that_holds_is_not_commented_on(hard: dict[str, str] | None) -> None:
    assert await warned(QUOTAS, {"hard": hard}) == ()


async def test_a_deletion_or_a_status_is_not_commented_on() -> None:
    spec = {"hard": {"nvidia.com/gpumem": "8"}}
    assert await warned(QUOTAS, spec, operation="DELETE") == ()
    assert await warned(QUOTAS, spec, operation="UPDATE", subResource="status") == ()


async def test_a_universe_quota_is_looked_over() -> None:
    [warning] = await warned(UNIVERSE_QUOTAS, {"hard": {"cpu": "8"}})
    assert warning.startswith("cpu: a universe quota limits nothing by this key")
    assert await warned(UNIVERSE_QUOTAS, {"hard": {"limits.nvidia.com/gpu": "8"}}) == ()


async def test_a_universe_quota_without_sense_is_named_as_such() -> None:
    [warning] = await warned(UNIVERSE_QUOTAS, {"hard": 5})
    assert warning.startswith("this quota limits nothing: ")
    assert "spec.hard" in warning


async def test_universe_quota_is_warned_about_outside_the_authority() -> None:
    elsewhere = AdmissionSettings(universe_authority=False)
    thing = {"metadata": {"name": "q", "uid": "u"}, "spec": {"hard": {"limits.nvidia.com/gpu": 8}}}
    [warning] = await answered(review(thing, **of(UNIVERSE_QUOTAS)), elsewhere)
    assert warning.startswith("this quota limits nothing: this cluster is configured not to supply")
    assert "universe_authority" in warning
    assert await answered(review(thing, **of(QUOTAS)), elsewhere) == ()


async def test_a_policy_is_looked_over() -> None:
    [warning] = await warned(POLICIES, {"mode": "perhaps"})
    assert warning.startswith("this policy is not used: ")
    assert await warned(POLICIES, {"mode": "off"}) == ()


async def test_a_recorded_quota_is_looked_over() -> None:
    for _, request in recorded("resourcequota-create", "validate"):
        await answered(request)


async def test_a_quota_without_a_spec_that_can_be_read_names_the_field() -> None:
    request = review({"metadata": {}, "spec": {"hard": 5}}, **of(QUOTAS))
    ledger = CoreLedger()
    async with serving(ledger, context=around(ledger, catalog=CATALOG)) as service:
        answer = await service.client.post("/admission/validate", json=request)
    assert answer.status_code == 400
    assert answer.json()["field"] == "$.request.object.spec.hard"
