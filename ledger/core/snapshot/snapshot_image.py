"""Snapshot image: the tables of a snapshot of schemas 4 and 5, as they are encoded.

A table has one list or column per field, with a row for each namespace, key, object and hold, in
the order of namespaces and keys. The rows of a namespace follow each other, so the namespace can be
read without the others. Texts and amounts that many rows share stand once in a pool, and a row has
the number of a **shape**: the shared fields of holds or objects.
"""

import msgspec

from ledger.core.model.amounts import Amounts
from ledger.core.model.cards import NodeCards, Placement, PreemptionClaim
from ledger.core.model.devices import Devices
from ledger.core.model.state import Account, Ended
from ledger.core.model.traits import Traits
from ledger.core.snapshot.number_columns import Column


class Pools(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The values that shapes name by number."""

    texts: list[str]
    amounts: list[Amounts]
    traits: list[Traits]


class Lines(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The lines in order of their numbers.

    `accounts` are numbers in the image's `account_names`, `keys` in `key_names`.
    """

    accounts: Column
    keys: Column
    key_names: list[str]
    used: list[int]
    limit: list[int]


class Spaces(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The namespaces: names, how many rows each has, and the numbers of covering accounts."""

    names: list[str]
    entries: Column
    objects: Column
    holds: Column
    covering: Column
    accounts: Column


class Entries(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The keys; `bodies` is twice the number of holds, plus one with a committed object."""

    keys: list[str]
    bodies: Column


class Objects(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The committed objects.

    A shape has the numbers of demand, root, traits, and of the admitted demand plus one, 0 without.
    """

    uids: list[str]
    versions: Column
    times: Column
    generations: Column
    shapes: Column
    shape_values: list[tuple[int, int, int, int]]


class Holds(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The holds. A shape has the numbers of demand, stamp, owner, actor, root and traits."""

    uids: list[str]
    bases: Column
    times: Column
    raises: Column
    shapes: Column
    shape_values: list[tuple[int, int, int, int, int, int]]


class SnapshotImage(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A whole state. `account_names` begins with those of `accounts`; closed ones follow."""

    position: int
    hash: bytes
    time: int
    clusters: dict[str, str]
    labels: dict[str, int]
    pools: Pools
    account_names: list[str]
    accounts: list[Account]
    lines: Lines
    spaces: Spaces
    entries: Entries
    objects: Objects
    holds: Holds
    ended: list[tuple[str, Ended]]
    described: dict[str, str]
    described_at: dict[str, int]
    nodes: dict[str, NodeCards]
    placed: dict[str, dict[str, Placement]]
    claims: dict[str, tuple[PreemptionClaim, ...]]


class Allocations(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The committed objects with bounds: their rows in `objects`, in order, devices and bounds.

    `bounds` are numbers of amounts plus one, 0 without. Roots have bounds and no devices.
    """

    rows: Column
    devices: list[Devices]
    bounds: Column


class ImageWithDevices(SnapshotImage, frozen=True, array_like=True, gc=False):
    """A whole state in which objects have devices: a snapshot of schema 5."""

    allocations: Allocations
