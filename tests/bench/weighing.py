"""Memory: how much the state grows with every root and with every pod that draws from one."""

from typing import Final

import msgspec

from ledger.core.model import accounts, commands
from ledger.core.model.state import State
from ledger.runtime import gc_tuning
from tests.bench import ledgers, populating
from tests.bench.deciding import MANY
from tests.bench.fleet import Fleet
from tests.bench.memory import resident
from tests.bench.results import Goal, Result, result
from tests.bench.running import fresh
from support.builders.decide_and_fold import apply

NAME: Final = "weighing"


def run(quick: bool) -> list[Result]:
    """Weigh the state that decisions are measured with."""
    fleet = msgspec.structs.replace(MANY, roots=2_000) if quick else MANY
    found = fresh(measure, fleet=msgspec.structs.asdict(fleet))
    size = f"{fleet.roots:,} roots with {fleet.pods} pods each, all of them committed"
    return [
        result("memory of a root", found["root"], "bytes", goal=Goal(2_048, "most"), note=size),
        result("memory of a pod that draws", found["pod"], "bytes", goal=Goal(2_048, "most")),
    ]


async def measure(fleet: dict[str, int]) -> dict[str, float]:
    """Return by how many bytes the process grows with each."""
    known, state = Fleet(**fleet), State()
    for number in range(known.namespaces):
        name = accounts.quota(ledgers.CLUSTER, f"team-{number}", "main")
        limits = dict.fromkeys(ledgers.KEYS, ledgers.LIMIT)
        apply(state, commands.SetLimits(name, (ledgers.namespace(number),), limits))
    empty = _resident()
    for command in populating.roots(known):
        apply(state, command)
    with_roots = _resident()
    for command in populating.pods(known):
        apply(state, command)
    with_pods = _resident()
    entries = sum(len(space.entries) for space in state.namespaces.values())
    assert entries == known.roots * (1 + known.pods), f"{entries} entries"
    return {
        "root": (with_roots - empty) / known.roots,
        "pod": (with_pods - with_roots) / (known.roots * known.pods),
    }


def _resident() -> int:
    gc_tuning.spare()
    return resident()
