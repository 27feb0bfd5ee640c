"""Placements in annotations of pods: device lists, MIG instances, and the slots of containers."""

import json
from typing import Any

import msgspec
import pytest

from ledger.core.model.cards import Part, Phase, Share
from ledger.kube.api.objects import Pod
from ledger.kube.hami import annotation_keys, pod_device_annotation
from ledger.kube.hami.node_device_annotation import TEXT_MAX
from ledger.kube.hami.placement_annotation_reader import parts_of
from ledger.kube.hami.pod_device_annotation import BadDeviceList
from ledger.kube.vendors.vendors import BUILT_IN, Vendor

GIVEN = annotation_keys.VENDOR_ANNOTATIONS["nvidia"].allocated
GPU = {"nvidia.com/gpu": "1"}
DCU = {"hygon.com/dcunum": "1"}


def container(name: str, limits: dict[str, str] | None = None, **fields: str) -> dict[str, Any]:
    return {"name": name, "resources": {"limits": limits or {}}, **fields}


def pod(*containers: dict[str, Any], init: tuple[dict[str, Any], ...] = ()) -> Pod:
    spec = {"containers": list(containers), "initContainers": list(init)}
    return msgspec.convert({"metadata": {"name": "p"}, "spec": spec}, Pod)


TWO = pod(container("main", GPU), container("aside"), init=(container("fetch"),))
A = Share("GPU-a", 4000, 30)
B = Share("GPU-b", 8000, 50)


def given(text: str, of: Pod = TWO, /, **others: str) -> dict[str, tuple[Share, ...]] | None:
    """Return the shares by container."""
    parts = parts_of({GIVEN: text, **others}, of)
    return None if parts is None else {part.container: part.shares for part in parts}


def test_slots_are_init_containers_first_and_then_the_others() -> None:
    spec = pod(
        container("main"),
        container("aside"),
        init=(container("fetch"), container("proxy", restartPolicy="Always")),
    )
    text = "GPU-a,NVIDIA,4000,30:;;GPU-b,NVIDIA,8000,50:GPU-a,NVIDIA,4000,30:;;"
    assert parts_of({GIVEN: text}, spec) == (
        Part("fetch", Phase.INIT, (A,)),
        Part("proxy", Phase.SIDECAR, ()),
        Part("main", Phase.APP, (B, A)),
        Part("aside", Phase.APP, ()),
    )


@pytest.mark.parametrize(
    "text",
    [
        ";GPU-a,NVIDIA,4000,30:;;",
        ";GPU-a,NVIDIA,4000,30:;",
        ";GPU-a,NVIDIA,4000,30:;;;;;",
        ";GPU-a,NVIDIA,4000,30;;",
        ",,0,0:;GPU-a,NVIDIA,4000,30:;,,0,0:;",
        ";GPU-a,NVIDIA,4000,30,more,fields:;;",
        "; GPU-a , NVIDIA A10, 4000, 30 :; ;",
        "nothing;GPU-a,NVIDIA,4000,30:;;",
        ";GPU-a[0-12],NVIDIA,4000,30:;;",
    ],
)
def test_lists_are_read_as_every_release_wrote_them(text: str) -> None:
    assert given(text) == {"fetch": (), "main": (A,), "aside": ()}


def test_slots_that_hami_lost_belong_to_the_containers_that_ask_for_cards() -> None:
    assert given("GPU-a,NVIDIA,4000,30:;") == {"fetch": (), "main": (A,), "aside": ()}
    old = pod(container("one"), container("two", GPU), init=(container("fetch"),))
    assert given(";GPU-a,NVIDIA,4000,30:;", old) == {"fetch": (), "one": (), "two": (A,)}
    asks = {"name": "main", "resources": {"requests": GPU}}
    assert given("GPU-a,NVIDIA,4000,30:;", pod({"name": "idle"}, asks)) == {
        "idle": (),
        "main": (A,),
    }


@pytest.mark.parametrize(
    "text",
    [
        "GPU-a,NVIDIA,4000,30:;GPU-b,NVIDIA,8000,50:;",
        ";;;GPU-a,NVIDIA,4000,30:;",
        ";;GPU-a,NVIDIA,4000,30:;;GPU-b,NVIDIA,8000,50:;",
    ],
)
def test_slots_that_fit_no_container_are_refused_with_both_numbers(text: str) -> None:
    with pytest.raises(BadDeviceList, match=f"{GIVEN} has . slots, . of them with cards, for 3"):
        given(text)


@pytest.mark.parametrize("text", ["", ";;;", ",,0,0:;,,0,0:;,,0,0:;", "a:b;;"])
def test_a_list_without_cards_gives_none(text: str) -> None:
    assert given(text) is None
    assert parts_of({}, TWO) is None


@pytest.mark.parametrize(
    ("entry", "wrong"),
    [
        ("GPU-a,NVIDIA,4000", "fewer than 4 fields"),
        ("GPU-a,NVIDIA,x,0", "slot 1: MiB 'x' is not a number"),
        ("GPU-a,NVIDIA,-1,0", "slot 1: MiB '-1' is not a number"),
        ("GPU-a,NVIDIA,1,", "slot 1: cores '' is not a number"),
        ("GPU-a,NVIDIA,1,2147483648", "slot 1: cores '2147483648' is not a number"),
        ("GPU-a,NVIDIA,1,١", "slot 1: cores"),  # noqa: RUF001 - a digit of another script
        ("x" * TEXT_MAX, f"longer than {TEXT_MAX} characters"),
    ],
)
def test_device_list_is_refused_with_annotation_and_place_when_invalid(
    entry: str, wrong: str
) -> None:
    with pytest.raises(BadDeviceList, match=wrong) as caught:
        given(f";{entry}:;;")
    assert str(caught.value).startswith(f"annotation {GIVEN}: ")


def test_a_share_of_all_cores_is_exclusive_in_the_makers_own_unit() -> None:
    ascend = annotation_keys.VENDOR_ANNOTATIONS["ascend-910b4"].allocated
    spec = pod(container("main"))
    whole = given("GPU-a,NVIDIA,1,100:GPU-b,NVIDIA,1,99:;", spec, **{ascend: "npu,W,1,100:;"})
    assert whole == {
        "main": (
            Share("GPU-a", 1, 100, exclusive=True),
            Share("GPU-b", 1, 99),
            Share("npu", 1, 100),
        )
    }


def test_each_makers_list_has_slots_of_its_own() -> None:
    dcu = annotation_keys.VENDOR_ANNOTATIONS["hygon"].allocated
    spec = pod(container("one", GPU), container("two", DCU), container("three"))
    assert given("GPU-a,NVIDIA,4000,30:;", spec, **{dcu: "DCU-1,DCU,5,6:;"}) == {
        "one": (A,),
        "two": (Share("DCU-1", 5, 6),),
        "three": (),
    }


def test_placement_reader_uses_resources_and_whole_cores_of_custom_vendors() -> None:
    renamed = Vendor(name="nvidia", count="acme.example/gpu", whole_cores=30)
    spec = pod(container("idle"), container("main", {"acme.example/gpu": "1"}))
    parts = parts_of({GIVEN: "GPU-a,NVIDIA,4000,30:;"}, spec, [renamed])
    assert parts is not None
    assert parts[1].shares == (Share("GPU-a", 4000, 30, exclusive=True),)


def test_nothing_is_read_for_makers_that_are_not_asked_about() -> None:
    assert parts_of(
        {GIVEN: "nonsense;,"}, TWO, [vendor for vendor in BUILT_IN if "amd" in vendor.name]
    ) is (None)


def instance(container: int = 1, device: int = 0, **fields: Any) -> dict[str, Any]:
    return {
        "containerIndex": container,
        "deviceIndex": device,
        "gpuUUID": "GPU-a",
        "profile": "1g.10gb",
        "placement": {"start": 2, "size": 1},
        **fields,
    }


def cut(*instances: dict[str, Any], text: str = ";GPU-a,NVIDIA,4000,100:;;") -> Any:
    return given(text, **{annotation_keys.INSTANCES: json.dumps(instances)})


def test_instances_of_cards_that_are_cut_are_at_their_slices() -> None:
    named = instance(migUUID="MIG-1", gpuInstanceID=1, computeInstanceID=0)
    share = Share("GPU-a", 4000, 100, profile="1g.10gb", start=2, size=1)
    assert cut(named) == {"fetch": (), "main": (share,), "aside": ()}


def test_instances_are_found_where_empty_slots_were_lost() -> None:
    assert cut(instance(0), text="GPU-a,NVIDIA,4000,100:;")["main"][0].profile == "1g.10gb"


def test_instances_are_of_the_cards_of_one_maker_only() -> None:
    others = {
        annotation_keys.VENDOR_ANNOTATIONS["hygon"].allocated: ";DCU-1,DCU,5,6:;;",
        annotation_keys.INSTANCES: json.dumps([instance()]),
    }
    shares = given(";GPU-a,NVIDIA,4000,100:;;", **others)
    assert shares is not None
    assert [(share.uuid, share.profile) for share in shares["main"]] == [
        ("GPU-a", "1g.10gb"),
        ("DCU-1", ""),
    ]


@pytest.mark.parametrize(
    ("instances", "wrong"),
    [
        ([instance(), instance()], "slot 1, card 0 is listed twice as an instance"),
        ([instance(0)], "slot 0, card 0, where the device list has nothing"),
        ([instance(9)], "slot 9, card 0, where the device list has nothing"),
        ([instance(device=1)], "slot 1, card 1, where the device list has nothing"),
        ([instance(gpuUUID="GPU-b")], "GPU-b is listed at slot 1, card 0, where .* has GPU-a"),
        ([instance(-1)], "`.*containerIndex`"),
        ([instance(profile="")], "`.*profile`"),
        ([instance(placement={"start": 2})], "`size`"),
        ([instance(placement={"start": 2, "size": 0})], "`.*size`"),
        ([{}], "missing required field"),
    ],
)
def test_instances_that_contradict_the_list_or_themselves_are_refused(
    instances: list[dict[str, Any]], wrong: str
) -> None:
    with pytest.raises(BadDeviceList, match=wrong) as caught:
        cut(*instances)
    assert str(caught.value).startswith(f"annotation {annotation_keys.INSTANCES}: ")


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ('[{"x":' + "[" * 100_000, "nested too deeply"),
        ("[" + " " * TEXT_MAX + "]", "longer than"),
        ("[", "does not list instances"),
    ],
)
def test_instances_that_cannot_be_read_are_refused(text: str, wrong: str) -> None:
    with pytest.raises(BadDeviceList, match=f"{annotation_keys.INSTANCES}: .*{wrong}"):
        given(";GPU-a,NVIDIA,4000,100:;;", **{annotation_keys.INSTANCES: text})


def test_a_list_is_written_with_a_slot_for_every_container() -> None:
    slots = [[], [A], [B, Share("GPU-c", 8000, 50)]]
    text = ";GPU-a,NVIDIA,4000,30:;GPU-b,NVIDIA,8000,50:GPU-c,NVIDIA,8000,50:;"
    assert pod_device_annotation.write(slots, "NVIDIA") == text
    assert pod_device_annotation.read(text) == slots
