"""Commands made from a seeded random source: few names, so that attempts meet each other."""

import random

from ledger.core import accounts, commands
from ledger.core.amounts import Amounts, without_zeros

CLUSTER = "c1"
NAMESPACES = ("c1/red", "c1/blue")
RESOURCES = ("nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores")
CAUSES = ("deleted", "finished")


def random_demand(source: random.Random) -> Amounts:
    return without_zeros({resource: source.choice((0, 1, 2, 5)) for resource in RESOURCES})


def random_limits(source: random.Random) -> dict[str, int]:
    keys = [f"{prefix}.{resource}" for resource in RESOURCES for prefix in ("limits", "requests")]
    return {key: source.choice((0, 4, 10, 30)) for key in source.sample(keys, source.randint(1, 3))}


def random_command(source: random.Random) -> commands.AnyCommand:
    """Return any command; reservations and observations are the most frequent."""
    make = source.choices((_reserve, _observe, _end, _refute, _limits), (8, 5, 3, 2, 1))[0]
    return make(source)


def random_commands(seed: int, count: int) -> list[commands.AnyCommand]:
    source = random.Random(seed)
    first: list[commands.AnyCommand] = [_limits(source) for _ in range(2)]
    return first + [random_command(source) for _ in range(count)]


def _where(source: random.Random) -> tuple[str, str, str]:
    return (
        source.choice(NAMESPACES),
        f"pods/p{source.randint(0, 4)}",
        f"uid-{source.randint(0, 11)}",
    )


def _reserve(source: random.Random) -> commands.Reserve:
    return commands.Reserve(
        *_where(source),
        random_demand(source),
        base=source.choice((0, 0, 0, 1, 2, 3)),
        stamp=source.choice(("", "", "s1", "s2", "s3")),
        owner=source.choice(("", "rs-1", "rs-2")),
        owner_holds_max=source.choice((0, 3)),
        actor="admin",
    )


def _observe(source: random.Random) -> commands.Observe:
    return commands.Observe(
        *_where(source), source.randint(1, 6), random_demand(source), actor="watch"
    )


def _end(source: random.Random) -> commands.End:
    return commands.End(*_where(source), source.randint(0, 6), source.choice(CAUSES), actor="watch")


def _refute(source: random.Random) -> commands.Refute:
    base, raises = source.choice((0, 0, 1, 2)), source.choice((commands.ANY_RAISES, 0, 1))
    return commands.Refute(*_where(source), base, actor="barrier", raises=raises)


def _limits(source: random.Random) -> commands.SetLimits | commands.CloseAccount:
    if source.random() < 0.2:
        return commands.CloseAccount(accounts.quota("c1", "red", "main"))
    if source.random() < 0.3:
        covers = tuple(source.sample(NAMESPACES, source.randint(1, 2)))
        return commands.SetLimits(accounts.universe("all"), covers, random_limits(source))
    namespace = source.choice(NAMESPACES)
    account = accounts.quota("c1", namespace.partition("/")[2], source.choice(("main", "other")))
    return commands.SetLimits(account, (namespace,), random_limits(source))
