"""State comparison: every field of two states, where one may have come from a snapshot."""

from ledger.core.model.amounts import without_zeros
from ledger.core.model.state import Draw, Namespace, State

DERIVED = ("journal", "schema")
"""Fields that no snapshot has."""

INDEXES = tuple(name for name in Namespace.__slots__ if name != "unread")


def differences(left: State, right: State) -> list[str]:
    """Return the fields that differ, as `field` or `namespace.field`."""
    different = [
        name
        for name in State.__slots__
        if name not in (*DERIVED, "namespaces") and getattr(left, name) != getattr(right, name)
    ]
    if set(left.namespaces) != set(right.namespaces):
        return [*different, "namespaces"]
    return different + [
        f"{name}.{field}"
        for name, space in left.namespaces.items()
        for field in INDEXES
        if _plain(space, field) != _plain(right.namespaces[name], field)
    ]


def _plain(space: Namespace, field: str) -> object:
    """Return a field; a draw counts zeros like absent amounts."""
    if field != "draws":
        return getattr(space, field)
    return {
        root: Draw(
            without_zeros(draw.charge), without_zeros(draw.committed), without_zeros(draw.saved)
        )
        for root, draw in space.draws.items()
    }
