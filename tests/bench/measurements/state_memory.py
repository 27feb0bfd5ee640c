"""State memory: the growth of the state by every root and by every pod that draws from one."""

import msgspec
from support.builders.decide_and_fold import apply

from ledger.core.model import accounts, commands
from ledger.core.model.state import State
from ledger.runtime import gc_tuning
from tests.bench.harness import ledgers
from tests.bench.harness.fresh_process import fresh
from tests.bench.harness.process_memory import resident
from tests.bench.harness.results import Goal, Result, result
from tests.bench.measurements.decisions import MANY
from tests.bench.objects import fleet_commands
from tests.bench.objects.fleet import Fleet


def run(quick: bool) -> list[Result]:
    """Weigh the state that decisions are measured with."""
    fleet = msgspec.structs.replace(MANY, roots=2_000) if quick else MANY
    memory = fresh(measure, fleet=msgspec.structs.asdict(fleet))
    size = f"{fleet.roots:,} roots with {fleet.pods} pods each, all of them committed"
    return [
        result("memory of a root", memory["root"], "bytes", goal=Goal(2_048, "most"), note=size),
        result("memory of a pod that draws", memory["pod"], "bytes", goal=Goal(2_048, "most")),
    ]


async def measure(fleet: dict[str, int]) -> dict[str, float]:
    """Return by how many bytes the process grows with each."""
    known, state = Fleet(**fleet), State()
    for number in range(known.namespaces):
        name = accounts.quota(ledgers.CLUSTER, f"team-{number}", "main")
        limits = dict.fromkeys(ledgers.KEYS, ledgers.LIMIT)
        apply(state, commands.SetLimits(name, (ledgers.namespace(number),), limits))
    empty = _resident()
    for command in fleet_commands.roots(known):
        apply(state, command)
    with_roots = _resident()
    for command in fleet_commands.pods(known):
        apply(state, command)
    with_pods = _resident()
    entries = sum(len(space.entries) for space in state.namespaces.values())
    assert entries == known.roots * (1 + known.pods), f"{entries} entries"
    return {
        "root": (with_roots - empty) / known.roots,
        "pod": (with_pods - with_roots) / (known.roots * known.pods),
    }


def _resident() -> int:
    gc_tuning.freeze_existing()
    return resident()
