"""The projection agrees with the core about cards and placements, at every position."""

import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from support.generators.placement_records import placement_payloads
from support.harness.projection_harness import log_of, project, viewing

from ledger.core.decide.cards import card_checks
from ledger.core.evolve.announced_and_lost_cards import account_of
from ledger.core.evolve.placement_charges import bookings_of
from ledger.core.model import accounts
from ledger.core.model.accounts import AccountKind
from ledger.core.model.card_bookings import exclusive_on
from ledger.core.model.state import State
from ledger.log import records
from projections.queries.card_usage import CardUsage, cards
from projections.store.readers import ProjectionView

SEEDS = st.integers(0, 2**32)
COMMANDS = 150

Numbers = dict[str, tuple[tuple[int, int], ...]]
"""Limit and used of memory, cores and slots, by card account."""
Residents = dict[tuple[str, str, str], tuple[int, int, int, bool]]
"""Booked amounts and whether they are exclusive, by card account, namespace and key of a pod."""


@contextmanager
def scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def numbers_of(state: State) -> Numbers:
    return {
        name: tuple((state.limit[line], state.used[line]) for line in account.lines.values())
        for name, account in state.accounts.items()
        if accounts.kind(name) is AccountKind.CARD
    }


def read_numbers(rows: list[CardUsage]) -> Numbers:
    return {
        accounts.card(card.cluster, card.node, card.uuid): (
            (card.memory, card.used_memory),
            (card.cores, card.used_cores),
            (card.slots, card.used_slots),
        )
        for card in rows
    }


def residents_of(state: State) -> Residents:
    return {
        (account_of(node, uuid), namespace, key): (
            *booking,
            uuid in exclusive_on(placed.parts, initialised=placed.initialised),
        )
        for node in state.residents
        for namespace, key, placed in card_checks.residents(state, node)
        for uuid, booking in bookings_of(placed).items()
    }


def read_residents(rows: list[CardUsage]) -> Residents:
    return {
        (
            accounts.card(card.cluster, card.node, card.uuid),
            f"{card.cluster}/{pod.namespace}",
            pod.key,
        ): (pod.memory, pod.cores, pod.slots, pod.exclusive)
        for card in rows
        for pod in card.pods
    }


def lines_of(state: State) -> set[tuple[str, str, int]]:
    return {
        (name, key, line)
        for name, account in state.accounts.items()
        for key, line in account.lines.items()
    }


async def read_lines(view: ProjectionView, position: int) -> set[tuple[str, str, int]]:
    statement = """
        SELECT name, key, lines.number FROM lines JOIN accounts ON accounts.number = account
        WHERE lines.opened <= :p AND (closed IS NULL OR closed > :p)
    """
    async with view.connection.execute(statement, {"p": position}) as rows:
        return {(name, key, number) async for name, key, number in rows}


def standing_of(state: State) -> dict[str, tuple[str, str]]:
    """Return the state and the keeper of every card."""
    standing: dict[str, tuple[str, str]] = {}
    for name, node in state.nodes.items():
        lost = "gone" if node.gone else "lost"
        standing |= {account_of(name, card.uuid): (lost, node.keeper) for card in node.lost}
        standing |= {account_of(name, card.uuid): ("announced", node.keeper) for card in node.cards}
    return standing


@given(SEEDS, st.sampled_from((1, 60, 10_000)))
@settings(max_examples=15)
async def test_every_position_reads_as_the_state_was(seed: int, at_once: int) -> None:
    payloads = placement_payloads(seed, COMMANDS)
    with scratch() as directory:
        path = directory / "ledger.sqlite"
        await project(path, log_of(payloads), at_once=at_once)
        state = State()
        async with viewing(path) as view:
            for position, payload in enumerate(payloads, 1):
                records.fold(state, position, payload)
                rows, _ = await cards(view, position, limit=100, pods=True)
                assert read_numbers(rows) == numbers_of(state)
                assert read_residents(rows) == residents_of(state)
                assert await read_lines(view, position) == lines_of(state)
                assert {
                    accounts.card(card.cluster, card.node, card.uuid): (card.state, card.keeper)
                    for card in rows
                } == standing_of(state)


async def test_random_records_place_move_resize_and_lose() -> None:
    counts: dict[str, int] = defaultdict(int)
    lost = 0
    for seed in range(5):
        state = State()
        for position, payload in enumerate(placement_payloads(seed, COMMANDS), 1):
            record = records.fold(state, position, payload)
            lost += any(node.lost for node in state.nodes.values())
            for item in record.items:
                counts[type(item.event).__name__] += 1
    wanted = {"CardsRegistered", "NodeRemoved", "Placed", "Advanced", "Unplaced", "Resized"}
    assert wanted <= counts.keys()
    assert min(counts[name] for name in wanted) >= 3
    assert lost > 5
