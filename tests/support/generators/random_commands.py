"""Random commands from a seed, about few names, so that attempts meet each other."""

import random

from ledger.core.model import accounts, commands
from ledger.core.model.amounts import Amounts, without_zeros
from ledger.core.model.devices import Device, Devices
from ledger.core.model.qualified_names import local_name
from ledger.core.model.traits import Reach, Requirement, Selection, Traits

CLUSTER = "c1"
NAMESPACES = ("c1/red", "c1/blue")
RESOURCES = ("nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores")
CAUSES = ("deleted", "finished")
ROOTS = ("deployments.apps/web", "jobs.batch/train")
RESOURCE_CLAIMS = tuple(f"resourceclaims.resource.k8s.io/c{number}" for number in range(2))
DEVICES = tuple(
    Device("c0", "gpu", "gpu.example.com", "n1", "gpu-0", share, "c1/n1", card, memory, 10)
    for share, card, memory in (("s1", "", 1_000), ("s2", "GPU-0", 2_000), ("", "GPU-1", 4_000))
)
TRAITS: tuple[Traits, ...] = (
    (),
    ("app=a",),
    ("!priority=high,app=b",),
    ("app=a", "app=b"),
    ("!read=1",),
    ("!read=2,app=a",),
    ("!read=20,team=x",),
    ("!read=20", "!priority=high,!read=1,app=b"),
    ("!unread=00ff",),
)
SELECTIONS: tuple[Selection, ...] = (
    (),
    (Requirement("app", "In", ("a",)),),
    (Requirement("!priority", "DoesNotExist"),),
    (Requirement("team", "DoesNotExist"),),
    (Requirement("team", "NotIn", ("x",)), Requirement("app", "Exists")),
)
REACHES = (
    Reach(),
    Reach(namespaces=(Requirement("tier", "In", ("gold",)),)),
    Reach(clusters=(Requirement("!region", "NotIn", ("west",)),)),
)
DESCRIPTIONS = ("", "tier=gold", "!name=red,tier=silver")


def random_demand(source: random.Random) -> Amounts:
    return without_zeros({resource: source.choice((0, 1, 2, 5)) for resource in RESOURCES})


def random_limits(source: random.Random) -> dict[str, int]:
    keys = [f"{prefix}.{resource}" for resource in RESOURCES for prefix in ("limits", "requests")]
    return {key: source.choice((0, 4, 10, 30)) for key in source.sample(keys, source.randint(1, 3))}


def random_command(source: random.Random) -> commands.AnyCommand:
    """Return any command; reservations and observations are the most frequent."""
    makers = (_reserve, _observe, _end, _refute, _limits, _describe)
    make = source.choices(makers, (80, 50, 30, 20, 10, 4))[0]
    return make(source)


def random_commands(seed: int, count: int) -> list[commands.AnyCommand]:
    source = random.Random(seed)
    first: list[commands.AnyCommand] = [_limits(source) for _ in range(2)]
    return first + [random_command(source) for _ in range(count)]


def _where(source: random.Random) -> tuple[str, str, str]:
    namespace, uid = source.choice(NAMESPACES), f"uid-{source.randint(0, 11)}"
    if source.random() < 0.3:
        return namespace, source.choice(ROOTS), uid
    if source.random() < 0.2:
        return namespace, source.choice(RESOURCE_CLAIMS), uid
    return namespace, f"pods/p{source.randint(0, 4)}", uid


def _root(source: random.Random, key: str) -> str:
    """Return the root that an object draws from: mostly none."""
    if not key.startswith("pods/"):
        return source.choice(("", "", commands.BARRED))
    return source.choice(("", "", commands.BARRED, *ROOTS))


def _reserve(source: random.Random) -> commands.Reserve:
    where = _where(source)
    return commands.Reserve(
        *where,
        random_demand(source),
        base=source.choice((0, 0, 0, 1, 2, 3)),
        owner=source.choice(("", "rs-1", "rs-2")),
        owner_holds_max=source.choice((0, 3)),
        actor="admin",
        root=_root(source, where[1]),
        traits=source.choice(TRAITS),
        forced=source.random() < 0.05,
    )


def _observe(source: random.Random) -> commands.Observe:
    where = _where(source)
    return commands.Observe(
        *where,
        source.randint(1, 6),
        random_demand(source),
        actor="watch",
        root=_root(source, where[1]),
        traits=source.choice(TRAITS),
        generation=source.choice((0, 0, 1)),
        devices=random_devices(source, where[1]),
    )


def random_devices(source: random.Random, key: str) -> Devices | None:
    """Return devices as a sender may see them: mostly none, None where it does not look."""
    if key in ROOTS:
        return None
    return source.choice((None, None, (), (), DEVICES[:1], DEVICES[1:], (DEVICES[0], DEVICES[2])))


def _end(source: random.Random) -> commands.End:
    return commands.End(*_where(source), source.randint(0, 6), source.choice(CAUSES), actor="watch")


def _refute(source: random.Random) -> commands.Refute:
    base, raises = source.choice((0, 0, 1, 2)), source.choice((commands.ANY_RAISES, 0, 1))
    return commands.Refute(*_where(source), base, actor="barrier", raises=raises)


def _limits(source: random.Random) -> commands.SetLimits | commands.CloseAccount:
    if source.random() < 0.2:
        return commands.CloseAccount(accounts.quota("c1", "red", "main"))
    limits, selects = random_limits(source), source.choice(SELECTIONS)
    if source.random() < 0.4:
        account = accounts.universe(source.choice(("all", "some")))
        if source.random() < 0.3:
            covers = tuple(source.sample(NAMESPACES, source.randint(1, 2)))
            return commands.SetLimits(account, covers, limits)
        reach, asked_only = source.choice(REACHES), len(limits) > 1
        return commands.SetLimits(
            account, (), limits, reach=reach, selects=selects, asked_only=asked_only
        )
    namespace = source.choice(NAMESPACES)
    account = accounts.quota("c1", local_name(namespace), source.choice(("main", "other")))
    version = source.choice((0, 0, 1, 2))
    return commands.SetLimits(account, (namespace,), limits, version=version, selects=selects)


def _describe(source: random.Random) -> commands.Describe:
    if source.random() < 0.3:
        return commands.Describe(CLUSTER, source.choice(("!name=c1", "!name=c1,!region=west")))
    return commands.Describe(source.choice(NAMESPACES), source.choice(DESCRIPTIONS))
