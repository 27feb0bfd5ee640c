"""Golden logs: one exported log per schema, which every later version must fold to one state.

    PYTHONPATH=tests python -m support.recorded.golden_logs new # schema-N.log and schema-N.json
    PYTHONPATH=tests python -m support.recorded.golden_logs expected  # every schema-N.json again

`new` is for a schema that has no log yet and refuses to replace one. `expected` is for a change
of the snapshot format or of the projection's tables, which change the recorded hashes and no
log. docs/reference/log-format.md describes when to do which.
"""

import asyncio
import hashlib
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec
from support.builders.decide_and_fold import record
from support.generators.random_commands import random_commands
from support.harness.projection_harness import SECOND, START, digest_of, log_of, project

from gpuledger.storage import archive_file
from gpuledger.storage.archive_file import ArchiveHeader, ArchiveWriter
from ledger.core import snapshot_format
from ledger.core.model import accounts, commands
from ledger.core.model.amounts import Amounts
from ledger.core.model.cards import HAMI, OWN, Card, Part, Parts, Phase, Profile, Share, Stage
from ledger.core.model.commands import End, Observe, Refute, Reserve, SetLimits
from ledger.core.model.devices import Device
from ledger.core.model.state import State
from ledger.core.model.traits import Reach, Requirement
from ledger.log import record_schema, records

GOLDEN = Path(__file__).parents[2] / "fixtures" / "golden"
TEAM, LAB = "east-1/team", "east-1/lab"
QUOTA = accounts.quota("east-1", "team", "gpus")
MEMORY, CARDS = "nvidia.com/gpumem", "nvidia.com/gpu"
RESOURCE_CLAIM = "resourceclaims.resource.k8s.io/shared"


class Expected(msgspec.Struct, frozen=True):
    """The result of a golden log: SHA-256 of the snapshot of its end, and the digest there."""

    position: int
    hash: str
    state: str
    digest: str
    events: dict[str, int]


def payloads_of(path: Path) -> list[bytes]:
    """Return the records of a golden log; the archive checks itself on the way."""
    return list(archive_file.read(path))[1:]


async def amounts_to(payloads: list[bytes]) -> Expected:
    """Fold records from zero and project them, and return the result."""
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
        hashlib.sha256(snapshot_format.encode(state)).hexdigest(),
        digest,
        dict(sorted(events.items())),
    )


def story() -> list[list[commands.AnyCommand]]:
    """Return groups of commands that lead to every event with every cause there is today."""
    return [
        [commands.RegisterCluster("east-1", "0b9d6a2e-kube-system", "settlement")],
        [SetLimits(QUOTA, (TEAM,), {f"limits.{MEMORY}": 40_000, f"requests.{CARDS}": 8})],
        [_create("a", "u1"), _create("b", "u2", owner="rs-1"), _create("c", "u3")],
        [_create("b-2", "u4", owner="rs-1")],
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
        *_cards(),
        *_labels(),
        *_allocations(),
        *([command] for command in random_commands(seed=3, count=300)),
    ]


def _roots_and_reach() -> list[list[commands.AnyCommand]]:
    """Return the events of schema 2: envelopes and draws, traits, reach, forced charges."""
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


def _labels() -> list[list[commands.AnyCommand]]:
    """Return the events of schema 4: labels with numbers, and labels not read yet."""
    account, limits = accounts.universe("of-a-team"), {CARDS: 50}
    team = (Requirement("team", "In", ("a",)),)
    tier = (*team, Requirement("tier", "Exists"))

    def limit(selects: tuple[Requirement, ...]) -> SetLimits:
        return SetLimits(account, (), limits, "settlement", reach=Reach(), selects=selects)

    def seen(name: str, uid: str, version: int, *texts: str) -> Observe:
        return msgspec.structs.replace(_seen(name, uid, version), traits=texts)

    return [
        [seen("l-1", "l1", 70), seen("l-2", "l2", 71)],
        [limit(team)],
        [seen("l-1", "l1", 70, "!read=1,team=a"), seen("l-2", "l2", 71, "!read=1")],
        [limit(tier)],
        [seen("l-1", "l1", 70, "!read=2,team=a"), seen("l-3", "l3", 72, "!unread=00ff")],
        [limit(team), limit(tier), commands.CloseAccount(account, "settlement")],
    ]


def _allocations() -> list[list[commands.AnyCommand]]:
    """Return the events of schema 5: resource claims and the devices that they give."""
    shared, cleared = RESOURCE_CLAIM, f"{RESOURCE_CLAIM}-2"
    first = Device("shared", "gpu", "gpu.example.com", "gpu-1", "gpu-0", "s1", "", "", 8_192, 10)
    second = msgspec.structs.replace(first, share="s2", memory=30_000, cores=100)
    own = Device("pod-x", "r/a", "gpu.example.com", "gpu-1", "gpu-1", "", "east-1/gpu-1", "GPU-1")
    admin = Device("tool", "all", "gpu.example.com", "gpu-1", "gpu-0", admin=True)
    bound, settled, more = (
        {CARDS: 1, MEMORY: amount} for amount in (first.memory * 2, first.memory, second.memory)
    )

    def seen(version: int, demand: Amounts, *devices: Device, key: str = shared) -> Observe:
        return Observe(TEAM, key, f"{key}-1", version, demand, "settlement", devices=devices)

    def reserve(key: str, demand: Amounts) -> Reserve:
        return Reserve(TEAM, key, f"{key}-1", demand, actor="alice")

    return [
        [SetLimits(QUOTA, (TEAM,), {f"limits.{MEMORY}": 90_000}, "settlement", 80)],
        [reserve(shared, bound), reserve("pods/claiming", bound), reserve(cleared, bound)],
        [seen(81, bound), seen(82, settled, first), seen(83, settled, own, key="pods/claiming")],
        [seen(84, bound), seen(85, more, second), seen(86, settled, first, second)],
        [seen(87, settled, first, key=cleared), seen(88, bound, key=cleared)],
        [Reserve(TEAM, "pods/claiming", "pods/claiming-1", more, 83, actor="alice")],
        [Observe(TEAM, "pods/claiming", "pods/claiming-1", 89, more, "settlement")],
        [seen(90, {}, admin, key=f"{RESOURCE_CLAIM}-admin")],
        [End(TEAM, shared, f"{shared}-1", 91, "deleted", "settlement")],
        [seen(92, settled, first, key=f"{RESOURCE_CLAIM}-3")],
    ]


def _cards() -> list[list[commands.AnyCommand]]:
    """Return the events of schema 3: nodes and their cards, placements, claims for pods."""
    root, demand = "deployments.apps/llm", {CARDS: 2, MEMORY: 80_000}
    limits = {f"limits.{MEMORY}": 200_000}
    loading = (
        Part("proxy", Phase.SIDECAR, (Share("GPU-0", 1_000, 0),)),
        Part("load", Phase.INIT, (Share("GPU-0", 38_000, 0),)),
        Part("main", Phase.APP, (Share("GPU-0", 30_000, 50),)),
    )
    instance = _app(Share("GPU-1", 10_000, 20, False, "1g.10gb", 4, 1))
    victim = (LAB, "pods/low", "g4")
    return [
        [SetLimits(accounts.quota("east-1", "lab", "gpus"), (LAB,), limits, "settlement", 50)],
        [_announce("gpu-1", OWN, _card(0), _cut_card(1)), _announce("gpu-2", HAMI, _card(2))],
        [Reserve(LAB, root, "r2", demand, actor="alice")],
        [Observe(LAB, root, "r2", 51, demand, "settlement", generation=1)],
        [_in_lab("a", "g1", root=root), _in_lab("b", "g2"), _in_lab("c", "g3")],
        [_place("a", "g1", "gpu-1", loading, {MEMORY: 39_000})],
        [_advance("a", "g1", Stage.BOUND), _place("b", "g2", "gpu-1", instance, {MEMORY: 10_000})],
        [_advance("a", "g1", Stage.ALLOCATED, initialised=True, stands={MEMORY: 31_000})],
        [_place("c", "g3", "gpu-2", _app(_half("GPU-2")), {MEMORY: 20_000})],
        [_resize("c", "g3"), _advance("c", "g3", Stage.ALLOCATED)],
        [_unplace("b", "g2", "gpu-1"), _place("b", "g2", "gpu-2", _app(_half("GPU-2", 10_000)))],
        [_in_lab("low", "g4"), _in_lab("high", "g5")],
        [_place("low", "g4", "gpu-1", _app(Share("GPU-0", 2_000, 50)), {MEMORY: 2_000}, seen=True)],
        [_make_room("high", "g5", "gpu-1", _app(Share("GPU-0", 2_000, 50)), victim)],
        [End(LAB, "pods/low", "g4", 60, "deleted", "settlement")],
        [_place("high", "g5", "gpu-1", _app(Share("GPU-0", 2_000, 50)), {MEMORY: 2_000})],
        [_in_lab("x", "g6"), _make_room("x", "g6", "gpu-2", _app(Share("GPU-2", 1_000, 0)))],
        [commands.Withdraw(LAB, "pods/x", "g6", "elapsed", "extender")],
        [_make_room("x", "g6", "gpu-2", _app(Share("GPU-2", 1_000, 0)))],
        [commands.Withdraw(LAB, "pods/x", "g6", "protected", "extender")],
        [_announce("gpu-1", OWN, _cut_card(1), version=61)],
        [commands.RemoveNode("east-1/gpu-2", "settlement", 62)],
        [End(LAB, "pods/c", "g3", 63, "finished", "settlement")],
        [_announce("gpu-1", OWN, _card(0, healthy=False), _cut_card(1), version=64)],
    ]


def _card(number: int, **changes: Any) -> Card:
    known = Card(f"GPU-{number}", number, "NVIDIA-A100-SXM4-40GB", 40_960, 100, 10)
    return msgspec.structs.replace(known, **changes)


def _cut_card(number: int) -> Card:
    places = tuple((start, 1) for start in range(7))
    return _card(number, mode="mig", profiles=(Profile("1g.10gb", 10_000, 20, 1, places),))


def _half(uuid: str, memory: int = 20_000) -> Share:
    return Share(uuid, memory, 0)


def _app(*shares: Share) -> Parts:
    return (Part("main", Phase.APP, shares),)


def _announce(node: str, keeper: str, *cards: Card, version: int = 52) -> commands.RegisterCards:
    return commands.RegisterCards(f"east-1/{node}", keeper, cards, "settlement", version)


def _in_lab(name: str, uid: str, root: str = "") -> Reserve:
    demand = {CARDS: 1, MEMORY: 40_000 if root else 20_000}
    return Reserve(LAB, f"pods/{name}", uid, demand, actor="alice", root=root)


def _place(
    name: str, uid: str, node: str, parts: Parts, stands: Amounts | None = None, **more: Any
) -> commands.Place:
    where = (LAB, f"pods/{name}", uid, f"east-1/{node}", parts)
    return commands.Place(*where, stands or {}, actor="extender", **more)


def _advance(name: str, uid: str, stage: int, **more: Any) -> commands.Advance:
    return commands.Advance(LAB, f"pods/{name}", uid, stage, actor="settlement", **more)


def _unplace(name: str, uid: str, node: str) -> commands.Unplace:
    return commands.Unplace(LAB, f"pods/{name}", uid, f"east-1/{node}", "unbound", "extender")


def _resize(name: str, uid: str) -> commands.Resize:
    parts, stands = _app(Share("GPU-2", 25_000, 30)), {MEMORY: 25_000}
    return commands.Resize(LAB, f"pods/{name}", uid, parts, stands, "alice")


def _make_room(
    name: str, uid: str, node: str, parts: Parts, *victims: tuple[str, str, str]
) -> commands.MakeRoom:
    where = (LAB, f"pods/{name}", uid, f"east-1/{node}", parts)
    return commands.MakeRoom(*where, victims, "extender")


def _create(name: str, uid: str, owner: str = "") -> Reserve:
    demand = {CARDS: 1, MEMORY: 5_000}
    return Reserve(TEAM, f"pods/{name}", uid, demand, 0, owner, 0, "alice")


def _update(name: str, uid: str, base: int, memory: int) -> Reserve:
    return Reserve(TEAM, f"pods/{name}", uid, {CARDS: 1, MEMORY: memory}, base, actor="alice")


def _seen(name: str, uid: str, version: int, memory: int = 5_000) -> Observe:
    demand = {CARDS: 1, MEMORY: memory}
    return Observe(TEAM, f"pods/{name}", uid, version, demand, "settlement")


def _end(name: str, uid: str, version: int, cause: str) -> End:
    return End(TEAM, f"pods/{name}", uid, version, cause, "settlement")


def _new() -> None:
    path = GOLDEN / f"schema-{record_schema.SCHEMA}.log"
    state, payloads = State(), list[bytes]()
    for group in story():
        payload = record(state, group, time=START + len(payloads) * SECOND)
        payloads += [payload] if payload is not None else []
    with ArchiveWriter(path, ArchiveHeader("golden", len(payloads))) as writer:
        for payload in payloads:
            writer.add(payload)
        writer.finish()


def _write_expected() -> None:
    for path in GOLDEN.glob("schema-*.log"):
        amounts = asyncio.run(amounts_to(payloads_of(path)))
        text = msgspec.json.format(msgspec.json.encode(amounts)).decode()
        path.with_suffix(".json").write_text(f"{text}\n")


if __name__ == "__main__":
    if sys.argv[1:] == ["new"]:
        _new()
    elif sys.argv[1:] != ["expected"]:
        sys.exit(__doc__)
    _write_expected()
