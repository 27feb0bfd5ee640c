"""Annotations and labels that a Binding writes on a pod."""

import json

import pytest

from ledger.core.model.cards import Card, Part, Phase, Share
from ledger.kube.hami.binding_annotations import annotations_of, labels_of

CARDS = (
    Card("GPU-a", 0, "NVIDIA A10", 24_576, 100, 10),
    Card("GPU-b", 1, "NVIDIA A10", 24_576, 100, 10),
    Card("DCU-1", 0, "Z100", 16_384, 100, 4, vendor="hygon"),
)
NOW = 1_772_366_400.75


def test_a_pod_carries_its_node_the_time_and_its_cards_twice() -> None:
    parts = (
        Part("fetch", Phase.INIT),
        Part("main", Phase.APP, (Share("GPU-a", 4000, 30),)),
        Part("more", Phase.APP, (Share("GPU-b", 8000, 50), Share("GPU-a", 1, 0))),
    )
    cards = ";GPU-a,NVIDIA,4000,30:;GPU-b,NVIDIA,8000,50:GPU-a,NVIDIA,1,0:;"
    assert annotations_of(parts, "n1", CARDS, NOW) == {
        "hami.io/vgpu-node": "n1",
        "hami.io/vgpu-time": "1772366400",
        "hami.io/bind-time": "1772366400",
        "hami.io/bind-phase": "allocating",
        "hami.io/vgpu-devices-to-allocate": cards,
        "hami.io/vgpu-devices-allocated": cards,
    }


def test_every_makers_list_has_a_slot_for_every_container() -> None:
    parts = (
        Part("one", Phase.APP, (Share("GPU-a", 1, 2), Share("DCU-1", 3, 4))),
        Part("two", Phase.APP, (Share("DCU-1", 5, 6),)),
        Part("three", Phase.APP),
    )
    annotations = annotations_of(parts, "n1", CARDS, NOW)
    assert annotations["hami.io/vgpu-devices-allocated"] == "GPU-a,NVIDIA,1,2:;;;"
    assert annotations["hami.io/vgpu-devices-to-allocate"] == "GPU-a,NVIDIA,1,2:;;;"
    assert annotations["hami.io/dcu-devices-allocated"] == "DCU-1,DCU,3,4:;DCU-1,DCU,5,6:;;"
    assert annotations["hami.io/dcu-devices-to-allocate"] == "DCU-1,DCU,3,4:;DCU-1,DCU,5,6:;;"


def test_instances_are_written_with_slot_and_place_in_the_vendor_list() -> None:
    instance = Share("GPU-b", 9856, 14, profile="1g.10gb", start=3, size=1)
    parts = (
        Part("fetch", Phase.INIT),
        Part("main", Phase.APP, (Share("DCU-1", 3, 4), Share("GPU-a", 1, 2), instance)),
    )
    annotations = annotations_of(parts, "n1", CARDS, NOW)
    assert json.loads(annotations["hami.io/vgpu-mig-allocations"]) == [
        {
            "containerIndex": 1,
            "deviceIndex": 1,
            "gpuUUID": "GPU-b",
            "profile": "1g.10gb",
            "placement": {"start": 3, "size": 1},
        }
    ]


def test_a_card_that_the_node_does_not_have_is_an_error_that_names_it() -> None:
    with pytest.raises(ValueError, match="main has a card that is not known: GPU-x"):
        annotations_of((Part("main", Phase.APP, (Share("GPU-x", 1, 1),)),), "n1", CARDS, NOW)


def test_a_node_whose_name_no_label_can_hold_is_not_in_the_labels() -> None:
    assert labels_of("n" * 63) == {"hami.io/vgpu-node": "n" * 63}
    assert labels_of("n" * 64) == {}
