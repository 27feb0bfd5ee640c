"""Devices of an allocation as answers and events show them."""

import msgspec

from ledger.core.model.devices import Device
from ledger.core.model.events import Committed, Observed
from projections.text.device_text import LISTED_MAX, devices_in_words, held_devices
from projections.text.event_text import describe

SHARED = Device("c", "gpu", "gpu.example.com", "n1", "gpu-0", "s1", "c1/n1", "GPU-0", 8_192, 10)
ADMIN = Device("c", "all", "gpu.example.com", "n1", "gpu-1", admin=True)


def test_a_device_shows_its_name_share_card_and_amounts() -> None:
    assert devices_in_words((SHARED, ADMIN)) == (
        "has device gpu-0 of pool n1 of gpu.example.com share s1 card GPU-0 8192 MiB 10 %,"
        " device gpu-1 of pool n1 of gpu.example.com for administration"
    )
    assert devices_in_words(()) == ""


def test_only_the_first_devices_are_named() -> None:
    text = devices_in_words((ADMIN,) * (LISTED_MAX + 3))
    assert text.count("gpu-1") == LISTED_MAX
    assert text.endswith(" and 3 more")


def test_a_held_device_has_the_name_of_its_node() -> None:
    held, admin = held_devices((SHARED, ADMIN))
    assert msgspec.structs.astuple(held) == (
        *msgspec.structs.astuple(SHARED)[:6],
        "n1",
        "GPU-0",
        8_192,
        10,
        False,
    )
    assert (admin.node, admin.admin) == ("", True)


def test_the_note_of_an_event_has_the_devices() -> None:
    seen = Observed("c1/a", "pods/p", "u", 1, {}, "allocated", root="jobs/j", devices=(ADMIN,))
    assert describe(seen).note.startswith("draws from jobs/j; has device gpu-1")
    assert describe(Committed("c1/a", "pods/p", "u", 1, devices=(ADMIN,))).note.startswith("has")
    assert describe(Committed("c1/a", "pods/p", "u", 1)).note == ""
