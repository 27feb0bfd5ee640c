"""Annotations of nodes and pods are read or rejected by name, without any other effect."""

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from mutating import Mutator

from ledger.core.model.denials import Denial
from ledger.kube.hami import annotation_keys, node_lock_annotation, pod_device_annotation
from ledger.kube.hami.node_announcement import read_announcement
from ledger.kube.hami.plugin_handshake import handshake_alive
from ledger.kube.hami.pod_device_annotation import BadDeviceList
from ledger.kube.requests.placements import placement_preferences

CORPUS: Final = Path(__file__).parent / "corpus" / "annotations"
NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)
INT32_MAX: Final = 2**31 - 1


def cards(text: str) -> None:
    """Read the cards of a node."""
    announcement = read_announcement(
        {
            annotation_keys.VENDOR_ANNOTATIONS["nvidia"].register: text,
            annotation_keys.PAIR_SCORES: text,
        }
    )
    assert not (announcement.problem and announcement.cards), "a list with a problem has no cards"
    for card in announcement.cards:
        assert card.uuid, "every card has a uuid"
        assert 0 <= card.memory <= INT32_MAX, f"{card.memory} MiB"


def device_list(text: str) -> None:
    """Read the devices of a pod."""
    try:
        slots = pod_device_annotation.read(text)
    except BadDeviceList:
        return
    for share in (share for slot in slots for share in slot):
        assert 0 <= share.memory <= INT32_MAX, f"{share.memory} MiB"


def lock(text: str) -> None:
    """Read the lock of a node, and its handshake."""
    node_lock = node_lock_annotation.read(text)
    if node_lock is not None:
        node_lock.expired(NOW)
    handshake_alive(text, NOW, 1)


def preferences(text: str) -> None:
    """Read the placement preferences of a pod."""
    answer = placement_preferences.preferences_of(dict.fromkeys(placement_preferences.KEYS, text))
    assert isinstance(answer, Denial | placement_preferences.PlacementPreferences)


READERS: Final[tuple[Callable[[str], None], ...]] = (cards, device_list, lock, preferences)


def targets(seed: int) -> tuple[Mutator, Callable[[bytes], None]]:
    """Return the source of inputs, and the function that reads an input."""
    corpus = [path.read_bytes() for path in sorted(CORPUS.iterdir())]

    def read_input(data: bytes) -> None:
        text = data.decode("utf-8", errors="replace")
        for reader in READERS:
            reader(text)

    return Mutator(seed, corpus), read_input


if __name__ == "__main__":
    from looping import main

    sys.exit(main(targets))
