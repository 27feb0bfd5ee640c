"""Both encodings of a recorded watch give the same pods, and damaged ones raise errors.

The recorded events are those of kube-apiserver v1.36.3; `tests/e2e/harness/watch_recorder.py` wrote
them.
"""

from pathlib import Path

import msgspec
import pytest
from support.generators.protobuf_objects import enclosed

from ledger.kube.api import protobuf_envelope, protobuf_fields
from ledger.kube.api.cluster_errors import Malformed
from ledger.kube.api.objects import Bookmark, ObjectMeta, Pod
from ledger.kube.api.protobuf_fields import NUMBERS
from ledger.kube.api.protobuf_structs import StructDecoder
from ledger.kube.watch.watch_encodings import (
    FrameSplitter,
    WatchEncoding,
    json_events,
    protobuf_events,
)

META = ObjectMeta(resource_version="42")
RECORDED = Path(__file__).parents[4] / "fixtures" / "pods"
FIELDS = [(struct, name) for struct, names in NUMBERS.items() for name in names]
OF_PODS = [
    pytest.param(struct, name, id=f"{struct.__name__}.{name}")
    for struct, name in FIELDS
    if not struct.__name__.startswith(("ApiStatus", "Status", "Bookmark"))
]


def events(encoding: WatchEncoding[Pod], content: bytes) -> list[tuple[str, Pod]]:
    """Return the events of a recorded watch until the last pod is deleted."""
    seen = []
    for event in encoding.splitter().feed(content):
        kind, encoded = encoding.event(event)
        if kind != "BOOKMARK":
            seen.append((kind, encoding.object(encoded)))
            if kind == "DELETED" and seen[-1][1].metadata.name == "gone":
                break
    return seen


def frames() -> list[bytes]:
    return list(FrameSplitter().feed((RECORDED / "watch.pb").read_bytes()))


@pytest.fixture(scope="module")
def in_json() -> list[tuple[str, Pod]]:
    return events(json_events(Pod), (RECORDED / "watch.json").read_bytes())


def test_recorded_pods_are_the_same_in_json_and_in_protobuf(in_json) -> None:
    assert len(in_json) > 10
    assert {kind for kind, _ in in_json} == {"ADDED", "MODIFIED", "DELETED"}
    assert events(protobuf_events(Pod, "Pod"), (RECORDED / "watch.pb").read_bytes()) == in_json


@pytest.mark.parametrize(("struct", "name"), OF_PODS)
def test_recorded_pods_show_each_field_with_another_number(
    struct: type[msgspec.Struct], name: str, in_json, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the comparison of the recorded pods would fail for a wrong number of any field."""
    wrong = {**NUMBERS, struct: {**NUMBERS[struct], name: 999}}
    monkeypatch.setattr(protobuf_envelope, "NUMBERS", wrong)
    assert events(protobuf_events(Pod, "Pod"), (RECORDED / "watch.pb").read_bytes()) != in_json


@pytest.mark.parametrize(("struct", "name"), FIELDS)
def test_field_without_a_number_is_an_error(struct: type[msgspec.Struct], name: str) -> None:
    numbers = {field: number for field, number in NUMBERS[struct].items() if field != name}
    with pytest.raises(KeyError, match=name):
        StructDecoder(struct, {**protobuf_fields.NUMBERS, struct: numbers})


def test_frames_are_the_same_in_chunks_of_any_size() -> None:
    content = (RECORDED / "watch.pb").read_bytes()
    for size in (1, 3, 4, 5, 1000, 4096):
        splitter = FrameSplitter()
        split: list[bytes] = []
        for start in range(0, len(content), size):
            split += splitter.feed(content[start : start + size])
        assert split == frames()


def test_long_frame_is_refused_before_it_is_read() -> None:
    splitter = FrameSplitter(bytes_max=16)
    assert list(splitter.feed(b"\0\0\0\x10" + b"x" * 16 + b"\0\0\0")) == [b"x" * 16]
    with pytest.raises(Malformed, match="17 bytes, more than 16"):
        list(splitter.feed(b"\x11"))


def test_mark_gives_the_version_of_a_bookmark() -> None:
    mark = protobuf_events(Pod, "Pod").mark(enclosed(Bookmark(META), "Pod"))
    assert mark == Bookmark(META)


def test_object_of_another_kind_is_an_error() -> None:
    encoding = protobuf_events(Pod, "Pod")
    with pytest.raises(msgspec.DecodeError, match="'Table' instead of a Pod"):
        encoding.object(enclosed(Pod(), "Table"))
    with pytest.raises(msgspec.DecodeError, match="does not begin"):
        encoding.object(b'{"kind": "Pod"}')


def test_damaged_frame_gives_a_pod_or_a_decoding_error() -> None:
    encoding = protobuf_events(Pod, "Pod")
    [frame] = [frame for frame in frames() if b"\x04full" in frame][:1]
    failed = 0
    for damaged in damages(frame):
        try:
            _, encoded = encoding.event(damaged)
            encoding.object(encoded)
        except (msgspec.DecodeError, UnicodeDecodeError):
            failed += 1
    assert failed > len(frame) / 2


def damages(frame: bytes) -> list[bytes]:
    """Return the frame cut after each byte, and with each byte changed."""
    cut = [frame[:end] for end in range(len(frame))]
    changed = [
        frame[:at] + bytes([frame[at] ^ mask]) + frame[at + 1 :]
        for at in range(len(frame))
        for mask in (0x01, 0x80)
    ]
    return cut + changed
