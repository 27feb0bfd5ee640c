"""A kind's definition goes, with all its objects, and comes again while the service runs."""

from typing import Final

import pytest

from tests.e2e.harness.agreement import cards_used
from tests.e2e.harness.polling import eventually
from tests.e2e.objects.fake_operators import DEFINITIONS, KINDS, definition
from tests.e2e.objects.pods import CARDS
from tests.e2e.objects.team import Team
from tests.e2e.objects.workloads import TeamWorkloads, template, workload

pytestmark = pytest.mark.e2e

LINE: Final = f"limits.{CARDS}"
FOUND_SECONDS: Final = 60.0
"""More than the service takes to look again for what is served."""


async def test_what_is_not_defined_any_more_frees_and_what_is_again_is_charged(
    team: Team,
) -> None:
    await team.limit({LINE: "8"})
    space = TeamWorkloads(team)
    workers = {"Worker": {"replicas": 6, "template": template()}}
    train = workload("TFJob", "train", tfReplicaSpecs=workers)
    [played] = [kind for kind in KINDS if kind.kind == "TFJob"]
    await space.created(train)
    assert await cards_used(team) == 6
    await team.cluster.must("DELETE", f"{DEFINITIONS}/{played.name}")
    await _settled(team, 0)
    await team.cluster.must("POST", DEFINITIONS, definition(played))

    async def create() -> int:
        try:
            return (await space.create(train)).status
        except ValueError:  # what is not served yet is not answered in JSON
            return 404

    await eventually(
        create, lambda status: status == 201, within=FOUND_SECONDS, what="it is served again"
    )
    train["metadata"] = {"name": "other"}
    refused = await space.create(train)
    assert refused.status == 403
    assert "allows 8, 6 are used" in refused.message
    await _settled(team, 6)
    assert await cards_used(team) == 6


async def _settled(team: Team, cards: int) -> None:
    """Wait until the ledger counts so many cards, with nothing open."""

    async def look() -> tuple[list[int], int]:
        return [row["used"] for row in await team.usage()], len(await team.holds())

    await eventually(
        look,
        lambda seen: seen == ([cards], 0),
        within=FOUND_SECONDS,
        what=f"{cards} cards are used in {team.namespace}, and nothing is open",
    )
