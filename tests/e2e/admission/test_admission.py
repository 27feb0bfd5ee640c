"""The answers to a client of the API server, and the ledger's holds afterwards."""

import asyncio

import pytest

from tests.e2e.harness.cluster import Cluster
from tests.e2e.objects.pods import CARDS, CORES, MEMORY, pod
from tests.e2e.objects.team import PLENTY, QUOTA, Team

pytestmark = pytest.mark.e2e

CREATES_AT_ONCE = 16
UNSETTLED = "TooManyUnsettled"
"""The reason for "later": one user may not have more than a bounded number of pods on the way."""


async def test_an_admitted_pod_is_committed(team: Team) -> None:
    await team.limit(PLENTY)
    await team.created(pod("training", cards=2, memory=8_000, cores=30))
    await team.agrees(cards=2, memory=16_000, cores=60)
    committed = {row["resource"]: row["committed"] for row in await team.usage()}
    assert committed == {
        f"limits.{CARDS}": 2,
        f"limits.{MEMORY}": 16_000,
        f"limits.{CORES}": 60,
    }


async def test_a_pod_that_does_not_fit_is_refused_with_numbers(team: Team) -> None:
    await team.limit({f"limits.{MEMORY}": "4000"})
    await team.created(pod("first", memory=3_000))
    answer = await team.create(pod("second", memory=2_000))
    assert answer.status == 403
    assert answer.body["reason"] == "Forbidden"
    expected = (
        f"namespace {team.namespace} has too little GPU memory left: Pod second would need"
        f' 2000 MiB, quota "{QUOTA}" allows 4000, 3000 are used.'
    )
    assert expected in answer.message
    assert "pods/first 3000" in answer.message, "the client learns who holds what is short"
    await team.created(pod("third", memory=1_000))
    await team.agrees(memory=4_000)


async def test_an_ordinary_user_is_refused_like_an_administrator(
    team: Team, tenant: Cluster
) -> None:
    await team.limit({f"limits.{CARDS}": "1"})
    fits = await tenant.ask("POST", f"{team.path}/pods", pod("mine"))
    exceeds = await tenant.ask("POST", f"{team.path}/pods", pod("mine-too"))
    assert (fits.status, exceeds.status) == (201, 403)
    await team.agrees(cards=1)


async def test_every_quota_of_the_namespace_must_hold(team: Team) -> None:
    await team.limit({f"limits.{CARDS}": "10"}, "wide")
    await team.limit({f"limits.{CARDS}": "1", f"limits.{MEMORY}": "9000"}, "narrow")
    await team.created(pod("fits"))
    answer = await team.create(pod("exceeds"))
    assert answer.status == 403
    assert 'quota "narrow" allows ' in answer.message
    await team.agrees(cards=1, memory=1_000)


async def test_pod_without_accelerators_is_not_reviewed(team: Team) -> None:
    await team.limit({f"limits.{CARDS}": "0"})
    plain = pod("plain")
    del plain["spec"]["containers"][0]["resources"]
    await team.created(plain)
    await team.agrees(cards=0)


async def test_a_dry_run_is_decided_and_writes_nothing(team: Team) -> None:
    await team.limit({f"limits.{CARDS}": "2"})
    before = await team.service.answer("projection", "digest")
    fits = await team.create(pod("fits", cards=2), params={"dryRun": "All"})
    exceeds = await team.create(pod("exceeds", cards=3), params={"dryRun": "All"})
    after = await team.service.answer("projection", "digest")
    assert (fits.status, exceeds.status) == (201, 403)
    assert "allows 2, nothing is used" in exceeds.message
    assert after == before
    await team.created(pod("real", cards=2))
    await team.agrees(cards=2)


async def test_creating_what_exists_again_and_again_charges_it_once(team: Team) -> None:
    await team.limit({f"limits.{MEMORY}": "4000"})
    await team.created(pod("taken", memory=3_000))
    statuses = [(await team.create(pod("taken", memory=3_000))).status for _ in range(10)]
    assert statuses == [409] * 10
    await team.created(pod("other", memory=1_000))
    await team.agrees(memory=4_000)


async def test_a_hundred_generated_names_are_a_hundred_charges(team: Team) -> None:
    await team.limit({f"limits.{CARDS}": "100"})
    turn = asyncio.Semaphore(CREATES_AT_ONCE)

    async def create() -> int:
        async with turn:
            answer = await team.create(pod("worker", generate=True))
            while UNSETTLED in answer.message:
                answer = await team.create(pod("worker", generate=True))
        return answer.status

    statuses = await asyncio.gather(*(create() for _ in range(110)))
    assert sorted(statuses) == [201] * 100 + [403] * 10
    await team.agrees(cards=100)


async def test_clients_that_race_for_the_last_card_get_it_once(team: Team) -> None:
    await team.limit({f"limits.{CARDS}": "1"})
    answers = await asyncio.gather(*(team.create(pod(f"racer-{n}")) for n in range(8)))
    assert sorted(answer.status for answer in answers) == [201] + [403] * 7
    await team.agrees(cards=1)
