"""A pod in protobuf is the pod of the same JSON, for generated and for recorded pods."""

import datetime as dt
import json
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.generators.protobuf_objects import enclosed

from ledger.kube.api.objects import AnySelector, Pod, Running
from ledger.kube.api.protobuf_envelope import ObjectDecoder

RECORDED = Path(__file__).parents[2] / "fixtures" / "admission"
DECODER = ObjectDecoder(Pod, "Pod")
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
TIMES = st.integers(-(2**31), 2**33).map(lambda seconds: dt.datetime.fromtimestamp(seconds, dt.UTC))
SCALARS = {
    str: TEXTS,
    bool: st.booleans(),
    int: st.integers(-(2**31), 2**31 - 1),
    dt.datetime: TIMES,
}


def values(type_: Any) -> st.SearchStrategy[Any]:
    """Return the values of a field that the API server can send: no empty list, no empty map."""
    if isinstance(type_, UnionType):
        present = [part for part in get_args(type_) if part is not NoneType]
        return st.none() | values(present[0]) if NoneType in get_args(type_) else values(present[0])
    kind, *rest = (get_origin(type_) or type_, *get_args(type_))
    if kind is list:
        return st.lists(values(rest[0]), min_size=1, max_size=2)
    if kind is dict:
        return st.dictionaries(TEXTS, TEXTS, min_size=1, max_size=2)
    if kind in SCALARS:
        return SCALARS[kind]
    fields = {field.name: values(field.type) for field in msgspec.structs.fields(kind)}
    return st.builds(kind, **fields)


@given(values(Pod))
def test_pod_is_the_same_in_json_and_in_protobuf(pod: Pod) -> None:
    assert DECODER.decode(enclosed(pod, "Pod")) == pod
    assert msgspec.json.decode(msgspec.json.encode(pod), type=Pod) == pod


def recorded_pods() -> list[Any]:
    """Return each pod in the recorded reviews."""
    pods: list[Any] = []

    def search(value: Any) -> None:
        if isinstance(value, dict) and value.get("kind") == "Pod" and "spec" in value:
            pods.append(value)
        if isinstance(value, dict | list):
            for part in value.values() if isinstance(value, dict) else value:
                search(part)

    for path in sorted(RECORDED.glob("*.json")):
        search(json.loads(path.read_text()))
    return pods


def test_recorded_pods_are_the_same_in_protobuf() -> None:
    pods = recorded_pods()
    assert len(pods) > 40
    for body in pods:
        pod = msgspec.convert(body, Pod)
        assert DECODER.decode(enclosed(pod, "Pod")) == pod


@pytest.mark.parametrize("presence", [AnySelector, Running])
def test_empty_message_is_present(presence: type[msgspec.Struct]) -> None:
    assert ObjectDecoder(presence, "A").decode(enclosed(presence(), "A")) == presence()


@given(st.binary(max_size=64))
def test_any_bytes_give_a_pod_or_a_decoding_error(content: bytes) -> None:
    for data in (content, b"k8s\0\x0a\x05\x12\x03Pod\x12" + bytes([len(content)]) + content):
        try:
            assert isinstance(DECODER.decode(data), Pod)
        except msgspec.DecodeError:
            continue
