"""The reading commands agree with the cluster, whether the service runs or not."""

import asyncio

import pytest

from tests.e2e.harness.service import CLUSTER
from tests.e2e.objects.pods import CARDS, MEMORY, pod
from tests.e2e.objects.team import QUOTA, Team

pytestmark = pytest.mark.e2e


async def test_usage_is_the_same_with_and_without_the_service(team: Team) -> None:
    await team.limit({f"limits.{CARDS}": "4", f"limits.{MEMORY}": "4000"})
    await team.created(pod("trainer", cards=2, memory=1_500))
    await team.agrees(cards=2, memory=3_000)
    running = await team.service.answer("usage", "--namespace", team.namespace)
    assert sorted(running, key=lambda row: row["limit"]) == [
        _row(team, f"limits.{CARDS}", limit=4, used=2),
        _row(team, f"limits.{MEMORY}", limit=4_000, used=3_000),
    ]
    team.service.kill()
    assert await team.service.answer("usage", "--namespace", team.namespace) == running


async def test_a_rebuilt_projection_has_the_digest_of_the_killed_one(team: Team) -> None:
    await team.limit({f"limits.{CARDS}": "4"})
    await asyncio.gather(*(team.created(pod(f"p-{n}")) for n in range(4)))
    await team.agrees(cards=4)
    team.service.kill()
    before = await team.service.answer("projection", "digest")
    at = f"--at={before['position']}"
    rebuilt = await team.service.answer("projection", "compare", at)
    assert (rebuilt["rebuilt"], rebuilt["same"]) == (before["digest"], True)
    await team.service.run_again()
    assert await team.service.answer("projection", "digest", at) == before


async def test_holders_are_the_live_pods(team: Team) -> None:
    await team.limit({f"limits.{CARDS}": "4"})
    for name in ("a", "b", "c"):
        await team.created(pod(name))
    await team.delete("b")
    await team.agrees(cards=2)
    holders = await team.service.answer("holders", "--namespace", team.namespace)
    assert {row["key"] for row in holders} == {"pods/a", "pods/c"}
    assert await team.service.answer("holds", "--namespace", team.namespace) == []


def _row(team: Team, resource: str, *, limit: int, used: int) -> dict[str, object]:
    return {
        "cluster": CLUSTER,
        "namespace": team.namespace,
        "quota": QUOTA,
        "resource": resource,
        "limit": limit,
        "reserved": 0,
        "committed": used,
        "used": used,
        "free": limit - used,
        "incomplete": False,
    }
