"""Image reader: a state from the tables of a snapshot of schema 4 or 5."""

from collections import deque

from ledger.core.model.state import State, UnreadNamespace
from ledger.core.snapshot.namespace_reader import NamespaceReader
from ledger.core.snapshot.number_columns import unpack
from ledger.core.snapshot.rebuilt_indexes import index_cards
from ledger.core.snapshot.snapshot_image import Lines, SnapshotImage


def restore(image: SnapshotImage) -> State:
    """Return the state of an image, whose namespaces are read at their first use.

    Raises ValueError or LookupError when the tables contradict each other.
    """
    state = State()
    state.position, state.hash, state.time = image.position, image.hash, image.time
    state.clusters, state.labels = image.clusters, image.labels
    state.described, state.described_at = image.described, image.described_at
    state.claims = image.claims
    state.ended = dict(image.ended)
    state.ended_order = deque(uid for uid, _ in image.ended)
    state.accounts = dict(zip(image.account_names, image.accounts, strict=False))
    state.reaching = {
        name: None for name, account in state.accounts.items() if account.reach is not None
    }
    state.names = _names(image.lines, image.account_names)
    state.used, state.limit = image.lines.used, image.lines.limit
    index_cards(state, image.nodes, image.placed)
    read = NamespaceReader(image).read
    state.namespaces = {
        name: UnreadNamespace(read, row) for row, name in enumerate(image.spaces.names)
    }
    return state


def _names(lines: Lines, account_names: list[str]) -> list[tuple[str, str]]:
    rows = len(lines.used)
    if len(lines.limit) != rows:
        raise ValueError(f"{rows} lines have {len(lines.limit)} limits")
    accounts, keys = unpack(lines.accounts, rows), unpack(lines.keys, rows)
    return list(
        zip(
            map(account_names.__getitem__, accounts),
            map(lines.key_names.__getitem__, keys),
            strict=True,
        )
    )
