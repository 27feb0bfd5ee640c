"""The Service of the webhooks has an endpoint that answers, for each failure of one replica.

The negative controls leave out one part of the rule each, and must be noticed.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from gpuledger.server.role import role_rule
from gpuledger.server.role.role_rule import RoleFacts, RoleMemory
from simulation.engine.loop import VirtualLoop
from simulation.world.role_world import RoleWorld

SEEDS = 5
LONG_SEEDS = 1_000
STEPS_MAX = 2_000_000
REFUSED_SECONDS_MAX = 5.0
AFTER_SECONDS = 60.0
WRITES_MAX = 12
"""Writes of labels after one event: each of three replicas gives and takes at most twice."""

Event = Callable[[RoleWorld], Coroutine[Any, Any, None]]


async def owner_killed(world: RoleWorld) -> None:
    world.replicas[world.owner].kill()


async def owner_node_lost(world: RoleWorld) -> None:
    pod = world.replicas[world.owner]
    pod.powered = False
    pod.kill()


async def follower_node_lost(world: RoleWorld) -> None:
    pod = next(pod for pod in world.replicas.values() if pod.name != world.owner)
    pod.powered = False
    pod.kill()


async def all_replaced(world: RoleWorld) -> None:
    """Update all replicas: a new pod is ready before an old one is deleted."""
    for old in list(world.replicas.values()):
        new = world.add()
        while not new.is_ready:  # noqa: ASYNC110 - a model of a pod has no event
            await asyncio.sleep(0.1)
        world.keep(world.delete(old))


async def owner_drained(world: RoleWorld) -> None:
    await world.delete(world.replicas[world.owner])


async def owner_unready(world: RoleWorld) -> None:
    world.replicas[world.owner].able = False


async def owner_apart(world: RoleWorld) -> None:
    world.replicas[world.owner].apart = True


async def follower_cut(world: RoleWorld) -> None:
    pod = next(pod for pod in world.replicas.values() if pod.name != world.owner)
    pod.connection.cut = True
    await asyncio.sleep(3.0)
    pod.connection.cut = False


async def api_away(world: RoleWorld) -> None:
    world.api_is_away = True
    await asyncio.sleep(15.0)
    world.api_is_away = False


HARMFUL: tuple[Event, ...] = (owner_killed, owner_node_lost)
HARMLESS: tuple[Event, ...] = (
    follower_node_lost,
    all_replaced,
    owner_drained,
    owner_unready,
    owner_apart,
    follower_cut,
    api_away,
)
UNSETTLED = (owner_unready, owner_apart)
"""Events after which the owner does not answer alone, because it keeps the lease."""

WRITES: dict[Event, int] = {follower_cut: 2, all_replaced: 3 * WRITES_MAX}
"""Most writes of labels after events that are unlike the others."""


def outcome(event: Event, seed: int) -> tuple[list[float], int]:
    """Return the seconds after an event at which a connection could fail, and the writes."""
    source = random.Random(f"{event.__name__}{seed}")
    world = RoleWorld(source)

    async def story() -> tuple[list[float], int]:
        await world.begin()
        begun = asyncio.get_running_loop().time()
        world.bad.clear()
        world.writes = 0
        await event(world)
        await asyncio.sleep(AFTER_SECONDS)
        if event not in UNSETTLED:
            settled_by_owner(world)
        return [round(bad.at - begun, 2) for bad in world.bad], world.writes

    loop = VirtualLoop(source, steps_max=STEPS_MAX)  # type: ignore[abstract]
    result = loop.run(story())
    assert loop.problems == []
    return result


def settled_by_owner(world: RoleWorld) -> None:
    alive = [name for name in world.labelled() if world.replicas[name].process.alive]
    assert alive == [world.owner], (alive, world.owner)


@pytest.mark.parametrize("event", HARMLESS)
def test_service_always_has_an_answering_endpoint(event: Event) -> None:
    for seed in range(SEEDS):
        bad, writes = outcome(event, seed)
        assert bad == [], (event.__name__, seed)
        assert writes <= WRITES.get(event, WRITES_MAX), (event.__name__, seed, writes)


@pytest.mark.parametrize("event", HARMFUL)
def test_dead_endpoint_is_out_of_the_service_in_time(event: Event) -> None:
    for seed in range(SEEDS):
        bad, writes = outcome(event, seed)
        assert bad, "a dead endpoint is noticed"
        assert max(bad) <= REFUSED_SECONDS_MAX, (event.__name__, seed, max(bad))
        assert writes <= WRITES_MAX, (seed, writes)


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("event", [*HARMLESS, *HARMFUL])
def test_no_seed_of_a_long_campaign_leaves_a_dead_endpoint(event: Event) -> None:
    for seed in range(SEEDS, SEEDS + LONG_SEEDS):
        bad, _ = outcome(event, seed)
        assert not bad or (event in HARMFUL and max(bad) <= REFUSED_SECONDS_MAX), (seed, bad)


def not_serving(memory: RoleMemory, facts: RoleFacts) -> bool:
    return facts.owner and facts.ready


@pytest.mark.parametrize(
    ("part", "replacement", "event"),
    [
        ("_survived", lambda *_: False, owner_node_lost),
        ("_label", lambda _, facts, fresh: facts.owner, owner_killed),
        ("_is_alone", not_serving, owner_apart),
        ("CONFIRMED_SECONDS", float("inf"), owner_apart),
        ("_connected", lambda *_: True, follower_cut),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_simulation_notices_a_rule_without_one_part(
    monkeypatch: pytest.MonkeyPatch, part: str, replacement: object, event: Event
) -> None:
    monkeypatch.setattr(role_rule, part, replacement)
    most = WRITES.get(event, WRITES_MAX)
    late = 0.0 if event in HARMLESS else REFUSED_SECONDS_MAX
    for seed in range(SEEDS):
        bad, writes = outcome(event, seed)
        if writes > most or (bad and max(bad) > late):
            return
    raise AssertionError(f"no seed notices that {part} is missing")
