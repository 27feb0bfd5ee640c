"""Decide and fold without a log: the work of the writer in three lines."""

from collections.abc import Iterable

from ledger.core.decide.decider import decide
from ledger.core.evolve.evolver import evolve
from ledger.core.model.commands import AnyCommand
from ledger.core.model.denials import Denial
from ledger.core.model.state import State
from ledger.log import records


def apply(state: State, *commands: AnyCommand) -> list[records.Item]:
    """Decide and apply commands; denials change nothing. Returns the items of a record."""
    items = []
    for command in commands:
        decision = decide(state, command)
        if not isinstance(decision, Denial):
            items += [records.Item(event, evolve(state, event, state.time)) for event in decision]
    return items


def record(state: State, commands: Iterable[AnyCommand], *, time: int = 0) -> bytes | None:
    """Decide commands into one sealed record and advance the state; None when nothing happened."""
    previous, state.time = state.time, max(state.time, time)
    items = apply(state, *commands)
    if not items:
        state.time = previous
        return None
    made = records.Record(state.position + 1, state.time, "w", "n", state.hash, len(items), items)
    payload, digest = records.encode(made)
    state.seal(made.position, digest, made.time)
    return payload


def used_of(state: State) -> dict[tuple[str, str], int]:
    """Return the usage of every line of every open account, by account and quota key."""
    return {
        state.names[line]: state.used[line]
        for account in state.accounts.values()
        for line in account.lines.values()
    }
