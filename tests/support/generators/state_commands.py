"""State commands: random commands about the contents of a state, for long sequences."""

import random

from support.generators.random_commands import (
    CAUSES,
    ROOTS,
    TRAITS,
    random_command,
    random_demand,
    random_devices,
)

from ledger.core.evolve import envelope_charges
from ledger.core.model import commands
from ledger.core.model.state import Hold, Object, State


def command_about(source: random.Random, state: State) -> commands.AnyCommand:
    """Return a command about one of the bodies of a state; any command when it holds none."""
    bodies = [
        (namespace, key, body)
        for namespace, space in state.namespaces.items()
        for key, entry in space.entries.items()
        for body in entry.bodies()
    ]
    if not bodies:
        return random_command(source)
    namespace, key, body = source.choice(bodies)
    if isinstance(body, Hold):
        return _about_hold(source, namespace, key, body)
    return _about_object(source, namespace, key, body)


def _about_hold(
    source: random.Random, namespace: str, key: str, hold: Hold
) -> commands.Observe | commands.Refute | commands.Reserve:
    where = (namespace, key, hold.uid)
    what = source.random()
    if what < 0.5:
        return _seen(source, where, hold.base + source.randint(1, 3), hold)
    if what < 0.75:
        return commands.Refute(*where, hold.base)
    return _asked(source, where, hold.base, hold)


def _about_object(
    source: random.Random, namespace: str, key: str, stored: Object
) -> commands.Observe | commands.End | commands.Reserve:
    where = (namespace, key, stored.uid)
    what = source.random()
    if what < 0.3:
        return commands.End(*where, stored.version + 1, source.choice((*CAUSES, "moved")))
    if what < 0.7:
        return _seen(source, where, stored.version + source.randint(0, 2), stored)
    return _asked(source, where, stored.version, stored)


def _seen(
    source: random.Random, where: tuple[str, str, str], version: int, body: Hold | Object
) -> commands.Observe:
    return commands.Observe(
        *where,
        version,
        source.choice((body.demand, random_demand(source), {})),
        root=_root(source, where[1], body),
        traits=source.choice((body.traits, source.choice(TRAITS))),
        generation=source.choice((0, 1, 2)),
        devices=random_devices(source, where[1]),
    )


def _asked(
    source: random.Random,
    where: tuple[str, str, str],
    base: int,
    body: Hold | Object,
) -> commands.Reserve:
    return commands.Reserve(
        *where,
        source.choice((body.demand, random_demand(source))),
        base=base,
        root=_root(source, where[1], body),
        traits=source.choice((body.traits, source.choice(TRAITS))),
        forced=source.random() < 0.1,
    )


def _root(source: random.Random, key: str, body: Hold | Object) -> str:
    """Return the same root mostly, now and then another; only pods draw."""
    others = ("", commands.BARRED, *ROOTS) if key.startswith(envelope_charges.PODS) else ("",)
    return source.choice((body.root, body.root, source.choice(others)))
