"""Roll-outs: two ReplicaSets side by side, with the surge that the namespace's policy allows."""

from typing import Final

import pytest

from tests.e2e.harness.agreement import cards_used
from tests.e2e.harness.cluster import Answer, Manifest
from tests.e2e.harness.polling import eventually
from tests.e2e.objects.pods import CARDS
from tests.e2e.objects.policies import under
from tests.e2e.objects.team import QUOTA, Team
from tests.e2e.objects.workloads import CONTROLLER_SECONDS, TeamWorkloads, replicated

pytestmark = pytest.mark.e2e

LINE: Final = f"limits.{CARDS}"


def rolling(surge: int | str, unavailable: int | str) -> Manifest:
    """Return a spec's strategy."""
    parameters = {"maxSurge": surge, "maxUnavailable": unavailable}
    return {"strategy": {"type": "RollingUpdate", "rollingUpdate": parameters}}


async def roll_out(space: TeamWorkloads, version: str = "new") -> Answer:
    """Change the template without asking for more."""
    change = {"metadata": {"labels": {"version": version}}}
    return await space.change("Deployment", "web", {"spec": {"template": change}})


async def rolled_out(space: TeamWorkloads, replicas: int) -> None:
    """Wait until only pods of the last template are left."""

    async def status() -> Manifest:
        deployment: Manifest = await space.get("Deployment", "web")
        return deployment

    def done(deployment: Manifest) -> bool:
        told = deployment["status"]
        return (
            told.get("observedGeneration") == deployment["metadata"]["generation"]
            and told.get("updatedReplicas") == told.get("replicas") == replicas
            and told.get("availableReplicas") == replicas
        )

    await eventually(status, done, within=CONTROLLER_SECONDS, what="the roll-out is done")


@pytest.mark.parametrize(
    ("limit", "strategy"),
    [("6", rolling(2, 0)), ("4", rolling(1, 1))],
    ids=["room for a surge", "no room, old pods go first"],
)
async def test_a_roll_out_ends_with_what_it_began_with(
    team: Team, limit: str, strategy: Manifest
) -> None:
    await team.limit({LINE: limit})
    space = TeamWorkloads(team)
    async with space.kubelet():
        await space.created(replicated("Deployment", 4, spec=strategy))
        await rolled_out(space, 4)
        assert (await roll_out(space)).status == 200
        await rolled_out(space, 4)
    assert await cards_used(space.team) == 4


async def test_pods_of_a_surge_are_charged_beyond_the_envelope_while_they_live(team: Team) -> None:
    await team.limit({LINE: "6"})
    space = TeamWorkloads(team)
    async with space.kubelet():
        await space.created(replicated("Deployment", 4, spec=rolling(2, 0)))
        await rolled_out(space, 4)
    assert (await roll_out(space)).status == 200
    await space.pods_are(6)
    assert await cards_used(space.team) == 6
    async with space.kubelet():
        await rolled_out(space, 4)
    assert await cards_used(space.team) == 4


async def test_reserved_surge_is_held_until_all_is_rolled_out(team: Team) -> None:
    space = TeamWorkloads(team)
    async with under(team, {LINE: "6"}, surge="reserve"):
        async with space.kubelet():
            await space.created(replicated("Deployment", 4, spec=rolling("50%", 1)))
            await rolled_out(space, 4)
            assert await cards_used(space.team) == 4
        assert (await roll_out(space)).status == 200
        assert await cards_used(space.team) == 6
        refused = await space.create(replicated("Deployment", 1, "other"))
        assert refused.status == 403
        assert "allows 6, 6 are used" in refused.message
        async with space.kubelet():
            await rolled_out(space, 4)
        assert await cards_used(space.team) == 4


async def test_reserved_surge_without_room_is_refused_with_the_change(team: Team) -> None:
    space = TeamWorkloads(team)
    async with under(team, {LINE: "5"}, surge="reserve"):
        async with space.kubelet():
            await space.created(replicated("Deployment", 4, spec=rolling(2, 1)))
            await rolled_out(space, 4)
            assert await cards_used(space.team) == 4
        refused = await roll_out(space)
        assert refused.status == 403
        assert "allows 5, 4 are used" in refused.message
        assert await cards_used(space.team) == 4


async def test_a_roll_out_that_could_never_end_is_refused_by_strict(team: Team) -> None:
    space = TeamWorkloads(team)
    async with under(team, {LINE: "4"}, surge="strict"):
        async with space.kubelet():
            await space.created(replicated("Deployment", 4, spec=rolling(1, 0)))
            await rolled_out(space, 4)
        refused = await roll_out(space)
        assert refused.status == 403, refused
        assert "the roll-out of Deployment web would need 5 GPUs" in refused.message, refused
        assert (await space.scale("Deployment", "web", 3)).status == 200
        await space.pods_are(3)
        assert await cards_used(space.team) == 3
        async with space.kubelet():
            assert (await roll_out(space)).status == 200
            await rolled_out(space, 3)
        assert await cards_used(space.team) == 3


async def test_a_roll_out_that_can_never_end_is_warned_of_and_goes_on_with_room(
    team: Team,
) -> None:
    await team.limit({LINE: "3"})
    space = TeamWorkloads(team)
    async with space.kubelet():
        await space.created(replicated("Deployment", 3, spec=rolling(1, 0)))
        await rolled_out(space, 3)
        answer = await roll_out(space)
        assert answer.status == 200
        assert any("this rollout can never end" in warning for warning in answer.warnings), (
            answer.warnings
        )
        path = f"{team.path}/resourcequotas/{QUOTA}"
        changed = await team.cluster.patch(path, {"spec": {"hard": {LINE: "4"}}})
        assert changed.status == 200, changed
        await rolled_out(space, 3)
        answer = await roll_out(space, "newer")
        assert (answer.status, answer.warnings) == (200, ())
        await rolled_out(space, 3)


async def test_what_is_recreated_needs_no_surge(team: Team) -> None:
    space = TeamWorkloads(team)
    async with under(team, {LINE: "4"}, surge="reserve"), space.kubelet():
        strategy = {"strategy": {"type": "Recreate"}}
        await space.created(replicated("Deployment", 4, spec=strategy))
        await rolled_out(space, 4)
        assert (await roll_out(space)).status == 200
        await rolled_out(space, 4)
        assert await cards_used(space.team) == 4
