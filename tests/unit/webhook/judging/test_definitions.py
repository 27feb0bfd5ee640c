"""Whoever writes a limit or a policy is told what it does not do, and never refused."""

from typing import Any

import pytest
from support.admission import CoreLedger, recorded, review, serving
from support.owned import CATALOG, around, of

from ledger.kube.resources import POLICIES, QUOTAS, UNIVERSE_QUOTAS, Resource
from webhook.policy import Policy


async def warned(resource: Resource, spec: dict[str, Any], **more: Any) -> tuple[str, ...]:
    """Return the warnings that the creation of an object leads to."""
    thing = {"metadata": {"name": "q", "namespace": "team", "uid": "u"}, "spec": spec}
    return await answered(review(thing, **of(resource), **more))


async def answered(one: dict[str, Any], policy: Policy | None = None) -> tuple[str, ...]:
    ledger = CoreLedger()
    async with serving(ledger, policy=policy, surroundings=around(ledger)) as service:
        response = await service.post(one)
    assert response["allowed"]
    assert ledger.submitted == []
    return tuple(response.get("warnings", ()))


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
async def test_a_key_that_nobody_enforces_is_named(operation: str) -> None:
    [warning] = await warned(QUOTAS, {"hard": {"nvidia.com/gpumem": "8"}}, operation=operation)
    assert warning == "nvidia.com/gpumem: nobody enforces this key; write limits.nvidia.com/gpumem"


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


async def test_a_universe_quota_of_another_cluster_than_the_authority_is_said_to_do_nothing() -> (
    None
):
    elsewhere = Policy(universe_authority=False)
    thing = {"metadata": {"name": "q", "uid": "u"}, "spec": {"hard": {"limits.nvidia.com/gpu": 8}}}
    [warning] = await answered(review(thing, **of(UNIVERSE_QUOTAS)), elsewhere)
    assert warning.startswith("this quota limits nothing: this cluster was told not to supply")
    assert "universe_authority" in warning
    assert await answered(review(thing, **of(QUOTAS)), elsewhere) == ()


async def test_a_policy_is_looked_over() -> None:
    [warning] = await warned(POLICIES, {"mode": "perhaps"})
    assert warning.startswith("this policy is not used: ")
    assert await warned(POLICIES, {"mode": "off"}) == ()


async def test_a_recorded_quota_is_looked_over() -> None:
    for _, one in recorded("resourcequota-create", "validate"):
        await answered(one)


async def test_a_quota_without_a_spec_that_can_be_read_names_the_field() -> None:
    one = review({"metadata": {}, "spec": {"hard": 5}}, **of(QUOTAS))
    ledger = CoreLedger()
    async with serving(ledger, surroundings=around(ledger, catalog=CATALOG)) as service:
        answer = await service.client.post("/admission/validate", json=one)
    assert answer.status_code == 400
    assert answer.json()["field"] == "$.request.object.spec.hard"
