"""Large states: restart and memory with a million holds, and memory of roots and of their pods."""

import tempfile

import msgspec
from support.builders.decide_and_fold import apply

from ledger.core.model import accounts, commands
from ledger.core.model.state import State
from tests.bench.harness import ledgers, process_memory, stored_log
from tests.bench.harness.fresh_process import fresh, median
from tests.bench.harness.results import Goal, Result, result
from tests.bench.measurements.decisions import MANY
from tests.bench.measurements.history import WITH_SERVER
from tests.bench.objects import fleet_commands, long_log
from tests.bench.objects.fleet import Fleet


def run(quick: bool) -> list[Result]:
    """Make a store and measure on it; then weigh a fleet."""
    return [*_with_holds(quick), *_with_roots(quick)]


def _with_holds(quick: bool) -> list[Result]:
    rounds, share = (1, 10) if quick else (3, 1)
    quotas, holds, events = 100_000 // share, 1_000_000 // share, 1_300_000 // share
    with tempfile.TemporaryDirectory() as store:
        made = fresh(long_log.prepare, store=store, quotas=quotas, holds=holds, events=events)
        opened = median([fresh(stored_log.reopen, store=store) for _ in range(rounds)])
        memory = fresh(stored_log.weigh, store=store, made=made, quotas=quotas, holds=holds)
    size = f"{quotas:,} accounts, {holds:,} holds, {events:,} events"
    replayed = quotas * memory["account"] + holds * memory["hold"]
    return [
        result(
            "restart with 1 M holds, from NATS connected to ready",
            opened["seconds"],
            "s",
            goal=Goal(3, "most"),
            note=size,
        ),
        result("restart with 1 M holds, processor time", opened["computed"], "s", note=WITH_SERVER),
        result(
            "memory of a state with 1 M holds",
            replayed / 1e6,
            "MB",
            goal=Goal(700, "most"),
            note="made by a replay",
        ),
        result("the same, read from a snapshot", opened["bytes"] / 1e6, "MB"),
        result("the same, at the peak of the restart", opened["peak"] / 1e6, "MB"),
    ]


def _with_roots(quick: bool) -> list[Result]:
    fleet = msgspec.structs.replace(MANY, roots=2_000) if quick else MANY
    memory = fresh(weigh_fleet, fleet=msgspec.structs.asdict(fleet))
    size = f"{fleet.roots:,} roots with {fleet.pods} pods each, all of them committed"
    return [
        result("memory of a root", memory["root"], "bytes", goal=Goal(2_048, "most"), note=size),
        result("memory of a pod that draws", memory["pod"], "bytes", goal=Goal(2_048, "most")),
    ]


async def weigh_fleet(fleet: dict[str, int]) -> dict[str, float]:
    """Return by how many bytes the process grows with each."""
    known, state = Fleet(**fleet), State()
    for number in range(known.namespaces):
        name = accounts.quota(ledgers.CLUSTER, f"team-{number}", "main")
        limits = dict.fromkeys(ledgers.KEYS, ledgers.LIMIT)
        apply(state, commands.SetLimits(name, (ledgers.namespace(number),), limits))
    empty = process_memory.settled()
    for command in fleet_commands.roots(known):
        apply(state, command)
    with_roots = process_memory.settled()
    for command in fleet_commands.pods(known):
        apply(state, command)
    with_pods = process_memory.settled()
    entries = sum(len(space.entries) for space in state.namespaces.values())
    assert entries == known.roots * (1 + known.pods), f"{entries} entries"
    return {
        "root": (with_roots - empty) / known.roots,
        "pod": (with_pods - with_roots) / (known.roots * known.pods),
    }
