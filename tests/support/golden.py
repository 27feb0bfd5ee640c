"""Golden logs: one log per schema, exported once, that every later version has to fold alike.

    PYTHONPATH=tests python -m support.golden new       # schema-N.log and schema-N.json
    PYTHONPATH=tests python -m support.golden expected  # every schema-N.json again

`new` is for a schema that has no log yet and refuses to replace one. `expected` is for a change
of the snapshot format or of the projection's tables, which change the recorded hashes and no
log. docs/log-format.md says when to do which.
"""

import asyncio
import hashlib
import sys
import tempfile
from pathlib import Path

import msgspec

from gpuledger import archive
from gpuledger.archive import ArchiveWriter, Header
from ledger.core import accounts, commands, snapshots
from ledger.core.commands import End, Observe, Refute, Reserve, SetLimits
from ledger.core.state import State
from ledger.core.traits import Reach, Requirement
from ledger.log import records
from support.folding import record
from support.generating import random_commands
from support.projecting import SECOND, START, digest_of, log_of, project

GOLDEN = Path(__file__).parents[1] / "fixtures" / "golden"
TEAM = "east-1/team"
QUOTA = accounts.quota("east-1", "team", "gpus")
MEMORY, CARDS = "nvidia.com/gpumem", "nvidia.com/gpu"


class Expected(msgspec.Struct, frozen=True):
    """What a golden log amounts to: SHA-256 of the snapshot of its end, and the digest there."""

    position: int
    hash: str
    state: str
    digest: str
    events: dict[str, int]


def payloads_of(path: Path) -> list[bytes]:
    """Return the records of a golden log; the archive checks itself on the way."""
    return list(archive.read(path))[1:]


async def amounts_to(payloads: list[bytes]) -> Expected:
    """Fold records from zero and project them, and return what that gives."""
    state, events = State(), dict[str, int]()
    for position, payload in enumerate(payloads, start=1):
        for item in records.fold(state, position, payload).items:
            cause = getattr(item.event, "cause", "")
            name = f"{type(item.event).__name__} {cause}".strip()
            events[name] = events.get(name, 0) + 1
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "projection.sqlite"
        await project(path, log_of(payloads))
        digest = (await digest_of(path)).digest
    return Expected(
        state.position,
        state.hash.hex(),
        hashlib.sha256(snapshots.encode(state)).hexdigest(),
        digest,
        dict(sorted(events.items())),
    )


def story() -> list[list[commands.AnyCommand]]:
    """Return groups of commands that lead to every event with every cause there is today."""
    return [
        [commands.RegisterCluster("east-1", "0b9d6a2e-kube-system", "settlement")],
        [SetLimits(QUOTA, (TEAM,), {f"limits.{MEMORY}": 40_000, f"requests.{CARDS}": 8})],
        [_create("a", "u1"), _create("b", "u2", stamp="s1", owner="rs-1"), _create("c", "u3")],
        [_create("b-2", "u4", stamp="s1", owner="rs-1")],
        [_seen("a", "u1", 10), _seen("b-2", "u4", 11)],
        [_update("a", "u1", 10, 6_000), _update("a", "u1", 10, 7_000)],
        [_seen("a", "u1", 12, 6_000)],
        [_update("a", "u1", 12, 8_000), _update("a", "u1", 13, 9_000)],
        [_seen("a", "u1", 14, 9_000)],
        [Refute(TEAM, "pods/c", "u3", 0, actor="settlement")],
        [_seen("c", "u3", 15)],
        [_seen("stranger", "u5", 16)],
        [SetLimits(QUOTA, (TEAM,), {f"limits.{MEMORY}": 10_000})],
        [_end("a", "u1", 17, "deleted"), _end("b-2", "u4", 18, "finished")],
        [SetLimits(QUOTA, (TEAM,), {f"limits.{MEMORY}": 60_000, f"requests.{CARDS}": 9})],
        [_create("d", "u6"), Refute(TEAM, "pods/d", "u6", 0, "operator", "admin")],
        [_create("e", "u7"), Refute(TEAM, "pods/e", "u7", 0, "unbound", "extender")],
        [SetLimits(accounts.universe("all"), (TEAM, "west-1/team"), {CARDS: 20})],
        [commands.CloseAccount(QUOTA, "settlement")],
        *_roots_and_reach(),
        *([command] for command in random_commands(seed=3, count=300)),
    ]


def _roots_and_reach() -> list[list[commands.AnyCommand]]:
    """Return what schema 2 brought: envelopes and draws, traits, reach, what policy forces."""
    gold = Reach(namespaces=(Requirement("tier", "In", ("gold",)),))
    high = (Requirement("!priority", "In", ("high",)),)
    web, demand = "deployments.apps/web", {CARDS: 2, MEMORY: 10_000}
    limits = {f"limits.{MEMORY}": 12_000}
    return [
        [SetLimits(QUOTA, (TEAM,), limits, "settlement", 40, selects=high)],
        [SetLimits(accounts.universe("gold"), (), limits, "settlement", 41, gold)],
        [Reserve(TEAM, web, "r1", demand, actor="alice", traits=("!priority=high,app=web",))],
        [Observe(TEAM, web, "r1", 42, demand, "settlement", "", ("!priority=high,app=web",), 1)],
        [commands.Describe(TEAM, "!name=team,tier=gold", "settlement")],
        [commands.Describe("east-1", "!name=east-1,!region=europe", "settlement")],
        [msgspec.structs.replace(_create("w", "u8"), root=web, traits=("app=web",))],
        [msgspec.structs.replace(_create("x", "u9"), root=web, forced=True)],
        [msgspec.structs.replace(_create("y", "u10"), root=commands.BARRED, forced=True)],
        [msgspec.structs.replace(_seen("w", "u8", 43), root=web, traits=("app=web",))],
        [msgspec.structs.replace(_seen("w", "u8", 44), traits=("app=other",))],
        [commands.End(TEAM, web, "r1", 45, "deleted", "settlement")],
    ]


def _create(name: str, uid: str, stamp: str = "", owner: str = "") -> Reserve:
    demand = {CARDS: 1, MEMORY: 5_000}
    return Reserve(TEAM, f"pods/{name}", uid, demand, 0, stamp, owner, 0, "alice")


def _update(name: str, uid: str, base: int, memory: int) -> Reserve:
    return Reserve(TEAM, f"pods/{name}", uid, {CARDS: 1, MEMORY: memory}, base, actor="alice")


def _seen(name: str, uid: str, version: int, memory: int = 5_000) -> Observe:
    demand = {CARDS: 1, MEMORY: memory}
    return Observe(TEAM, f"pods/{name}", uid, version, demand, "settlement")


def _end(name: str, uid: str, version: int, cause: str) -> End:
    return End(TEAM, f"pods/{name}", uid, version, cause, "settlement")


def _new() -> None:
    path = GOLDEN / f"schema-{records.SCHEMA}.log"
    state, payloads = State(), list[bytes]()
    for group in story():
        payload = record(state, group, time=START + len(payloads) * SECOND)
        payloads += [payload] if payload is not None else []
    with ArchiveWriter(path, Header("golden", len(payloads))) as writer:
        for payload in payloads:
            writer.add(payload)
        writer.finish()


def _write_expected() -> None:
    for path in GOLDEN.glob("schema-*.log"):
        found = asyncio.run(amounts_to(payloads_of(path)))
        text = msgspec.json.format(msgspec.json.encode(found)).decode()
        path.with_suffix(".json").write_text(f"{text}\n")


if __name__ == "__main__":
    if sys.argv[1:] == ["new"]:
        _new()
    elif sys.argv[1:] != ["expected"]:
        sys.exit(__doc__)
    _write_expected()
