"""Random commands about one root and its pods, whose resource claims are allocated and cleared."""

import random
from collections.abc import Iterator

from support.generators.random_commands import DEVICES, NAMESPACES, ROOTS, TRAITS

from ledger.core.model import accounts, commands
from ledger.core.model.amounts import Amounts, without_zeros
from ledger.core.model.devices import Devices

NAMESPACE, ROOT = NAMESPACES[0], ROOTS[0]
_BOUND, _CARDS, _MEMORY = 10, "nvidia.com/gpu", "nvidia.com/gpumem"


def allocated_workloads(seed: int, count: int) -> Iterator[commands.AnyCommand]:
    """Yield commands as they come from one API server: versions rise."""
    source = random.Random(seed)
    limit = source.choice((25, 25, 35, 60, 1_000))
    limits = {f"limits.{_MEMORY}": limit, f"requests.{_CARDS}": 8}
    quota = accounts.quota("c1", "red", "main")
    yield commands.SetLimits(quota, (NAMESPACE,), limits, asked_only=source.random() < 0.3)
    for version in range(1, count + 1):
        yield source.choices((_root, _pod, _end), (4, 12, 2))[0](source, version)


def _amounts(memory: int, cards: int) -> Amounts:
    return without_zeros({_MEMORY: memory, _CARDS: cards})


def _root(source: random.Random, version: int) -> commands.AnyCommand:
    pods = source.choice((1, 2, 3, 3, 3, 4))
    where = NAMESPACE, ROOT, source.choice(("root-1",) * 9 + ("root-2",))
    memory = _BOUND * pods + source.choice((0, 0, 1, 3, 5))
    demand, traits = _amounts(memory, pods), source.choice(TRAITS[:2])
    if source.random() < 0.5:
        return commands.Reserve(*where, demand, base=version, traits=traits)
    generation = source.choice((0, pods, version))
    return commands.Observe(*where, version, demand, generation=generation, traits=traits)


def _pod(source: random.Random, version: int) -> commands.AnyCommand:
    name = source.randint(0, 4)
    where = NAMESPACE, f"pods/p{name}", f"uid-{name}-{source.choice((1, 1, 1, 2))}"
    root = source.choice((ROOT,) * 7 + ("", "", commands.BARRED))
    if source.random() < 0.3:
        return commands.Reserve(*where, _amounts(_BOUND, 1), root=root)
    devices: Devices = source.choice(((), DEVICES[:1], DEVICES[:1], DEVICES[1:2]))
    memory = source.choice((1, 4, 8, 8, 10, 12)) if devices else _BOUND
    return commands.Observe(*where, version, _amounts(memory, 1), root=root, devices=devices)


def _end(source: random.Random, version: int) -> commands.AnyCommand:
    if source.random() < 0.1:
        return commands.End(NAMESPACE, ROOT, "root-1", version, "deleted")
    name = source.randint(0, 4)
    uid = f"uid-{name}-{source.choice((1, 1, 1, 2))}"
    return commands.End(NAMESPACE, f"pods/p{name}", uid, version, "deleted")
