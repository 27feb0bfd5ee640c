"""ResourceQuota objects come, change and go; the ledger follows them and evicts no pod."""

from typing import Final

import pytest

from tests.e2e.harness.cluster import Manifest
from tests.e2e.harness.polling import eventually
from tests.e2e.objects.pods import CARDS, MEMORY, pod
from tests.e2e.objects.team import QUOTA, SEEN_SECONDS, Team

pytestmark = pytest.mark.e2e

MEM: Final = f"limits.{MEMORY}"


async def test_a_quota_created_after_the_pods_counts_them(team: Team) -> None:
    await team.created(pod("early", cards=2, memory=1_000))
    await team.created(pod("bird", cards=1, memory=3_000))
    await team.limit({f"limits.{CARDS}": "4", f"limits.{MEMORY}": "5000"})
    await team.agrees(cards=3, memory=5_000)
    assert (await team.create(pod("late"))).status == 403


async def test_a_quota_lowered_below_its_use_blocks_and_evicts_no_pod(team: Team) -> None:
    await team.limit({f"limits.{CARDS}": "3"})
    for name in ("a", "b", "c"):
        await team.created(pod(name))
    await _change(team, {f"limits.{CARDS}": "1"})
    answer = await team.create(pod("d"))
    assert answer.status == 403
    assert "allows 1, 3 are used" in answer.message
    assert len(await team.pods()) == 3
    await team.agrees(cards=3)


async def test_a_quota_raised_lets_the_next_pod_in(team: Team) -> None:
    await team.limit({f"limits.{CARDS}": "1"})
    await team.created(pod("a"))
    assert (await team.create(pod("b"))).status == 403
    await _change(team, {f"limits.{CARDS}": "2"})
    await team.created(pod("b"))
    await team.agrees(cards=2)


async def test_an_explicit_zero_blocks_until_the_quota_is_deleted(team: Team) -> None:
    await team.limit({f"limits.{CARDS}": "0"})
    answer = await team.create(pod("first"))
    assert answer.status == 403
    assert "allows 0, nothing is used" in answer.message
    await team.cluster.must("DELETE", f"{team.path}/resourcequotas/{QUOTA}")
    await eventually(
        team.usage,
        lambda rows: rows == [],
        within=SEEN_SECONDS,
        what=f"the ledger knows no quota of {team.namespace} any more",
    )
    await team.created(pod("first"))
    await team.limit({f"limits.{CARDS}": "5"})
    await team.agrees(cards=1)


@pytest.mark.parametrize(
    ("written", "stored", "limit"),
    [("16384", "16384", 16_384), ("16000", "16k", 16_000), ("1000", "1k", 1_000)],
)
async def test_a_plain_number_holds_however_the_api_server_stores_it(
    team: Team, written: str, stored: str, limit: int
) -> None:
    await team.create_quota({MEM: written}, QUOTA)
    quota = await team.cluster.must("GET", f"{team.path}/resourcequotas/{QUOTA}")
    assert quota["spec"]["hard"] == {MEM: stored}
    await team.limits_are({MEM: str(limit)})


@pytest.mark.parametrize("written", ["16Gi", "16384Mi", "16777216Ki"])
async def test_a_limit_in_bytes_is_refused_with_the_mebibytes(team: Team, written: str) -> None:
    answer = await team.cluster.ask("POST", f"{team.path}/resourcequotas", _quota(MEM, written))
    assert answer.status == 403, answer
    assert "nvidia.com/gpumem counts MiB: write 16384 for 16Gi" in answer.message, answer.message


async def test_a_limit_of_an_enormous_number_leaves_the_service_in_order(team: Team) -> None:
    for written in ("1e400", "9223372036854775808", "16G"):
        quota = _quota(MEM, written)
        quota["metadata"] = {"generateName": "huge-"}
        answer = await team.cluster.ask("POST", f"{team.path}/resourcequotas", quota)
        assert answer.status == 201, answer
        assert answer.warnings, written
    await team.limit({f"limits.{CARDS}": "1"})
    await team.created(pod("a"))
    assert (await team.create(pod("b"))).status == 403
    await team.agrees(cards=1)


def _quota(key: str, limit: str) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": QUOTA},
        "spec": {"hard": {key: limit}},
    }


async def _change(team: Team, hard: dict[str, str]) -> None:
    answer = await team.cluster.patch(
        f"{team.path}/resourcequotas/{QUOTA}", {"spec": {"hard": hard}}
    )
    assert answer.status == 200, answer
    await team.limits_are(hard)
