"""The outcome of recorded arrivals on other nodes and by other rules."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from support.builders.decide_and_fold import record
from support.harness.projection_harness import log_of

from gpuledger.cli.exit_codes import CommandError, Exit
from gpuledger.queries import what_if_scenarios
from gpuledger.queries.what_if_scenarios import WhatIfQuestion, WhatIfReport
from gpuledger.storage.open_log import OpenLog
from ledger.core.model import commands
from ledger.core.model.cards import OWN, Card, Part, Phase, Share
from ledger.core.model.devices import Device
from ledger.core.model.state import State
from ledger.runtime.settings.settings import Settings

MEMORY = "nvidia.com/gpumem"
HOUR = 3_600_000_000
START = 1_750_000_000_000_000
Asking = Callable[..., Awaitable[WhatIfReport]]


def card(uuid: str, index: int = 0, model: str = "A100", **more: Any) -> Card:
    return Card(uuid, index, model, 16_000, 100, 10, **more)


def where(name: str) -> tuple[str, str, str]:
    return "local/team", f"pods/{name}", name


def placed(name: str, node: str, *shares: Share, init: int = 0) -> list[commands.AnyCommand]:
    """Return the commands by which a pod is created, seen and placed."""
    demand = {"nvidia.com/gpu": len(shares), MEMORY: sum(share.memory for share in shares)}
    first = [Part("first", Phase.INIT, (Share(shares[0].uuid, init, 0),))] if init else []
    parts = (*first, Part("main", Phase.APP, shares))
    return [
        commands.Reserve(*where(name), demand),
        commands.Observe(*where(name), 5, demand),
        commands.Place(*where(name), f"local/{node}", parts),
    ]


def ended(name: str) -> commands.AnyCommand:
    return commands.End(*where(name), 9, "deleted")


HISTORY: list[list[commands.AnyCommand]] = [
    [
        commands.RegisterCards("local/n1", OWN, (card("a"), card("b", 1))),
        commands.RegisterCards("local/n2", OWN, (card("c", model="T4"),)),
        commands.SetLimits("quota/local/team/main", ("local/team",), {f"limits.{MEMORY}": 90_000}),
        *placed("p0", "n1", Share("a", 8_000, 0)),
    ],
    placed("p1", "n1", Share("b", 16_000, 50)),
    placed("p2", "n2", Share("c", 8_000, 0)),
    [ended("p1")],
    [
        *placed("p3", "n2", Share("c", 1_000, 0)),
        commands.Unplace(*where("p3"), "local/n2", "unbound"),
        ended("p0"),
    ],
]
"""The events of each hour."""


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Asking:
    """Ask about a log with one record an hour."""

    async def asked(
        history: list[list[commands.AnyCommand]] = HISTORY, *, policy: Any = "binpack", **more: Any
    ) -> WhatIfReport:
        state = State()
        payloads = [
            record(state, steps, time=START + hour * HOUR) for hour, steps in enumerate(history)
        ]
        log: Any = log_of([payload for payload in payloads if payload])

        @asynccontextmanager
        async def opened(_: Settings) -> AsyncIterator[OpenLog]:
            yield OpenLog(log, alone=False)

        monkeypatch.setattr(what_if_scenarios, "open_log", opened)
        return await what_if_scenarios.run_scenarios(
            Settings(), Settings(node_policy=policy), WhatIfQuestion(**more)
        )

    return asked


def placed_and_refused(answer: WhatIfReport) -> list[tuple[str, int, int]]:
    return [
        (scenario.name, scenario.outcome.placed, scenario.outcome.refused)
        for scenario in answer.scenarios
    ]


async def test_what_was_is_counted_over_time(ask: Asking) -> None:
    answer = await ask()
    recorded = answer.scenarios[0].outcome
    assert (answer.first, answer.last, answer.arrivals, answer.unbound) == (1, 5, 3, 1)
    assert (recorded.nodes, recorded.placed, recorded.refused) == (2, 3, 0)
    assert (recorded.memory.peak, recorded.memory.mean, recorded.memory.limit) == (
        *(32_000, 20_000.0, 48_000),
    )
    assert (recorded.cores.peak, recorded.cores.mean) == (50, 25.0)
    assert (recorded.cards.peak, recorded.cards.mean, recorded.whole) == (3, 2.0, 1.0)
    assert recorded.gpu_hours == 8.0


async def test_a_question_that_changes_nothing_replays_the_same_twice(ask: Asking) -> None:
    answer = await ask()
    assert [scenario.name for scenario in answer.scenarios] == ["recorded", "replayed", "what-if"]
    assert answer.scenarios[1].outcome == answer.scenarios[2].outcome
    assert await ask() == answer


async def test_without_a_node_pods_go_elsewhere_or_nowhere(ask: Asking) -> None:
    answer = await ask(without=("n1",))
    assert placed_and_refused(answer)[2] == ("what-if", 2, 1)
    other = answer.scenarios[2].outcome
    assert other.reasons == {"CardInsufficientMemory": 1}
    assert other.nodes == 1
    fewer = (await ask(without=("n2",))).scenarios[2].outcome
    assert (fewer.placed, fewer.gpu_hours, fewer.whole) == (3, 6.0, 0.5)


async def test_copies_of_a_node_have_cards_of_their_own(ask: Asking) -> None:
    answer = await ask(nodes=("+2=n1",), without=("n1",))
    other = answer.scenarios[2].outcome
    assert (other.nodes, other.cards.limit, other.placed) == (3, 5, 3)


async def test_another_policy_uses_other_cards(ask: Asking) -> None:
    answer = await ask(policy="spread")
    replayed, other = (scenario.outcome for scenario in answer.scenarios[1:])
    assert (replayed.gpu_hours, other.gpu_hours) == (6.0, 8.0)


async def test_pods_can_be_held_to_the_type_of_card_that_they_had(ask: Asking) -> None:
    answer = await ask(without=("n2",), keep_types=True)
    assert placed_and_refused(answer) == [
        ("recorded", 3, 0),
        ("replayed", 3, 0),
        ("what-if", 2, 1),
    ]
    assert answer.scenarios[2].outcome.reasons == {"CardTypeMismatch": 1}


async def test_another_limit_refuses_reservations_and_the_pods_behind_them(ask: Asking) -> None:
    answer = await ask(limits=(f"team/main:limits.{MEMORY}=16000",))
    (tried,) = answer.limits
    assert (tried.reservations, tried.refused, tried.before, tried.peak) == (4, 2, 0, 16_000)
    assert placed_and_refused(answer)[2] == ("what-if", 2, 0)
    assert [scenario.not_created for scenario in answer.scenarios] == [0, 0, 1]


async def test_who_was_refused_gives_nothing_back(ask: Asking) -> None:
    """After the end of p1, which was refused, p4 of 9,000 beside p0 and p2 is still too much."""
    history = [*HISTORY[:4], placed("p4", "n1", Share("b", 9_000, 0))]
    (tried,) = (await ask(history, limits=(f"team/main:limits.{MEMORY}=24000",))).limits
    assert (tried.refused, tried.peak) == (1, 24_000)
    (lower,) = (await ask(history, limits=(f"team/main:limits.{MEMORY}=23999",))).limits
    assert (lower.refused, lower.peak) == (2, 16_000)


async def test_pods_of_a_workload_that_was_refused_do_not_come(ask: Asking) -> None:
    root = "deployments.apps/web"
    web = ("local/team", root, "web")
    pod = commands.Reserve(*where("web-0"), {MEMORY: 8_000}, root=root)
    place = commands.Place(
        *where("web-0"), "local/n1", (Part("m", Phase.APP, (Share("a", 8_000, 0),)),)
    )
    history = [HISTORY[0], [commands.Reserve(*web, {MEMORY: 8_000}), pod, place]]
    tight = {"limits": (f"team/main:limits.{MEMORY}=15999",)}
    answer = await ask(history, **tight)
    assert answer.limits[0].refused == 1
    assert answer.scenarios[2].not_created == 1
    # Created again when there is room, it has its pods.
    gone = [commands.End(*where("web-0"), 9, "deleted"), commands.Refute(*web, 0), ended("p0")]
    history += [gone, [commands.Reserve("local/team", root, "web-2", {MEMORY: 8_000})]]
    again = commands.Reserve(*where("web-1"), {MEMORY: 8_000}, root=root)
    placing = commands.Place(
        *where("web-1"), "local/n1", (Part("m", Phase.APP, (Share("a", 8_000, 0),)),)
    )
    answer = await ask([*history, [again, placing]], **tight)
    assert (answer.limits[0].refused, answer.scenarios[2].not_created) == (1, 1)


async def test_allocations_of_a_refused_workload_free_nothing(ask: Asking) -> None:
    root, device = "deployments.apps/web", Device("c", "gpu", "gpu.example.com", "n1", "gpu-0")
    steps: list[commands.AnyCommand] = [
        commands.Reserve("local/team", root, "web", {MEMORY: 16_000})
    ]
    steps += [commands.Observe("local/team", root, "web", 5, {MEMORY: 16_000}, generation=1)]
    for name in ("web-0", "web-1"):
        pod = where(name)
        steps += [
            commands.Reserve(*pod, {MEMORY: 8_000}, root=root),
            commands.Observe(*pod, 6, {MEMORY: 4_000}, root=root, devices=(device,)),
        ]
    more = [commands.Reserve(*where("p5"), {MEMORY: 16_000})]
    tight = (f"team/main:limits.{MEMORY}=23999",)
    (tried,) = (await ask([HISTORY[0], steps, more], limits=tight)).limits
    assert (tried.refused, tried.peak) == (2, 8_000)


async def test_what_policy_let_in_over_the_limit_is_not_refused(ask: Asking) -> None:
    forced = commands.Reserve(*where("p1"), {MEMORY: 90_000}, forced=True)
    (tried,) = (
        await ask([HISTORY[0], [forced]], limits=(f"team/main:limits.{MEMORY}=9000",))
    ).limits
    assert (tried.refused, tried.peak) == (0, 98_000)


async def test_a_resized_pod_has_what_it_had_last(ask: Asking) -> None:
    parts = (Part("main", Phase.APP, (Share("a", 12_000, 0),)),)
    resize = commands.Resize(*where("p0"), parts, {MEMORY: 12_000})
    answer = await ask([HISTORY[0], [resize], HISTORY[1]])
    assert answer.scenarios[0].outcome.memory.peak == 28_000


async def test_the_end_of_an_attempt_is_not_the_end_of_the_pod_at_its_key(ask: Asking) -> None:
    other = commands.Reserve("local/team", "pods/p0", "other", {MEMORY: 1_000})
    refute = commands.Refute("local/team", "pods/p0", "other", 0)
    answer = await ask([HISTORY[0], [other], [refute], HISTORY[1]])
    assert answer.scenarios[0].outcome.memory.peak == 24_000


async def test_who_was_there_before_counts_from_the_begin(ask: Asking) -> None:
    answer = await ask(since="3", until="4")
    recorded = answer.scenarios[0].outcome
    assert (answer.first, answer.last, answer.arrivals) == (3, 4, 3)
    # From the record before, at one hour, to the end of p1 at three.
    assert (recorded.memory.mean, recorded.gpu_hours) == (28_000.0, 5.0)


async def test_a_time_begins_between_records(ask: Asking) -> None:
    """The records are of 15:06:40, 16:06:40 and so on."""
    answer = await ask(since="2025-06-15T17:36:40Z", until="2025-06-15T18:36:40Z")
    assert (answer.first, answer.last) == (4, 4)
    assert answer.since.startswith("2025-06-15T17:36:40")
    assert answer.scenarios[0].outcome.gpu_hours == 2.5


async def test_init_containers_take_their_cards_until_they_are_over(ask: Asking) -> None:
    steps = placed("p0", "n1", Share("a", 8_000, 0), init=12_000)
    over = commands.Advance(*where("p0"), 2, initialised=True)
    answer = await ask([[*HISTORY[0][:3], *steps], [over], [ended("p0")]])
    for scenario in answer.scenarios:
        assert (scenario.outcome.memory.peak, scenario.outcome.memory.mean) == (12_000, 10_000.0), (
            scenario.name
        )


async def test_cards_count_as_usable_all_the_time_if_they_ever_were(ask: Asking) -> None:
    ill = commands.RegisterCards("local/n1", OWN, (card("a", healthy=False), card("b", 1)))
    answer = await ask([*HISTORY, [ill], [commands.RemoveNode("local/n2")]])
    assert {scenario.outcome.cards.limit for scenario in answer.scenarios} == {3}
    assert placed_and_refused(answer)[1] == ("replayed", 3, 0)


async def test_a_whole_card_stays_one(ask: Asking) -> None:
    whole = placed("p1", "n1", Share("b", 16_000, 100, exclusive=True))
    answer = await ask([HISTORY[0], whole, HISTORY[2], [ended("p1")]], without=("n2",))
    other = answer.scenarios[2].outcome
    assert (other.placed, other.cards.peak) == (3, 2)


async def test_log_without_records_has_no_scenarios(ask: Asking) -> None:
    answer = await ask([])
    assert (answer.arrivals, answer.scenarios[0].outcome.placed) == (0, 0)


@pytest.mark.parametrize(
    ("asked", "said", "status"),
    [
        ({"nodes": ("ten=n1",)}, r"write \+COUNT=NODE", Exit.USAGE),
        ({"nodes": ("+99999=n1",)}, r"from 1 to 10000", Exit.USAGE),
        ({"nodes": ("+1=n9",)}, "node n9 had no cards", Exit.NOT_FOUND),
        ({"without": ("n9",)}, "node n9 had no cards", Exit.NOT_FOUND),
        ({"limits": ("main",)}, "write NAMESPACE/QUOTA:KEY=AMOUNT", Exit.USAGE),
        ({"limits": ("team/main:limits.cpu=1",)}, "nothing counts limits.cpu", Exit.NOT_FOUND),
        ({"limits": ("company:limits.cpu=1",)}, "on universe/company", Exit.NOT_FOUND),
        ({"until": "6"}, "position 6 is not in the log", Exit.NOT_FOUND),
        ({"since": "6"}, "--since 6 is after position 5", Exit.USAGE),
        ({"since": "4", "until": "3"}, "--since 4 is after --until 3", Exit.USAGE),
        ({"since": "2030-01-01"}, "--since 2030-01-01 is after position 5", Exit.USAGE),
    ],
)
async def test_what_cannot_be_asked_is_refused_with_a_remedy(
    ask: Asking, asked: dict[str, Any], said: str, status: Exit
) -> None:
    with pytest.raises(CommandError, match=said) as stopped:
        await ask(**asked)
    assert stopped.value.status is status
