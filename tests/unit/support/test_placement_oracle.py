"""The oracle of end-to-end tests finds every kind of wrong, and nothing where all is well."""

from typing import Any

import pytest
from support.oracles.placement_oracle import CardUsage, complaints, usage_of

from tests.e2e.scheduling.support.nodes import Form, node
from tests.e2e.scheduling.support.pod_shapes import container, pod, sidecar

Manifest = dict[str, Any]
FIRST, SECOND = "GPU-gpu-1-0", "GPU-gpu-1-1"


@pytest.mark.parametrize("form", ["json", "colons"])
def test_pods_that_have_what_they_asked_for_are_well(form: Form) -> None:
    pods = [
        placed(f"{FIRST},NVIDIA,4000,20:;", container(cards=1, memory=4_000, cores=20)),
        placed(f"{FIRST},NVIDIA,6144,0:;", container(cards=1, percentage=25), name="b"),
        placed(f"{SECOND},NVIDIA,24576,100:;", container(cards=1), name="c"),
    ]
    assert not complaints([node("gpu-1", form=form)], pods)
    assert usage_of(pods) == {
        ("gpu-1", FIRST): CardUsage(10_144, 20, 2),
        ("gpu-1", SECOND): CardUsage(24_576, 100, 1),
    }


def test_init_containers_count_with_earlier_sidecars_until_they_end() -> None:
    made = placed(
        f"{FIRST},NVIDIA,500,5:;{FIRST},NVIDIA,9000,50:;{FIRST},NVIDIA,4000,20:;",
        container(cards=1, memory=4_000, cores=20),
        first=(
            sidecar("beside", cards=1, memory=500, cores=5),
            container("first", cards=1, memory=9_000, cores=50),
        ),
    )
    assert not complaints([node("gpu-1")], [made])
    assert usage_of([made]) == {("gpu-1", FIRST): CardUsage(9_500, 55, 2)}
    over = {"name": "first", "state": {"terminated": {"exitCode": 0}}}
    made["status"] = {"initContainerStatuses": [over]}
    assert usage_of([made]) == {("gpu-1", FIRST): CardUsage(4_500, 25, 2)}


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_finished_pods_take_nothing(phase: str) -> None:
    made = placed(f"{FIRST},NVIDIA,4000,20:;", container(cards=1, memory=4_000, cores=20))
    made["status"] = {"phase": phase}
    assert not usage_of([made])


SMALL = container(cards=1, memory=4_000, cores=20)


@pytest.mark.parametrize(
    ("given", "asked", "annotations", "wrong"),
    [
        ("", SMALL, {}, "asked for 1 cards and was given 0"),
        ("GPU-x,NVIDIA,4000,20:;", SMALL, {}, "which gpu-1 does not have"),
        (f"{FIRST},NVIDIA,3000,20:;", SMALL, {}, "was given 3000 MiB"),
        (f"{FIRST},NVIDIA,4000,10:;", SMALL, {}, "was given 10 %"),
        (f"{FIRST},NVIDIA,30000,0:;", container(cards=1, memory=30_000), {}, "30000 of 24576"),
        (
            f"{FIRST},NVIDIA,1000,0:{FIRST},NVIDIA,1000,0:;",
            container(cards=2, memory=1_000),
            {},
            "one card twice",
        ),
        (f"{FIRST},NVIDIA,4000,20:;", SMALL, {"nvidia.com/use-gputype": "H100"}, "NVIDIA A10"),
        (f"{FIRST},NVIDIA,4000,20:;", SMALL, {"nvidia.com/use-gpuuuid": SECOND}, "did not name"),
        (
            f"{FIRST},NVIDIA,1000,0:GPU-gpu-1-7,NVIDIA,1000,0:;",
            container(cards=2, memory=1_000),
            {"nvidia.com/numa-bind": "true"},
            "NUMA nodes [0, 1]",
        ),
        (f"{FIRST},NVIDIA,4000,20:;", SMALL, {"hami.io/vgpu-node": "gpu-2"}, "says gpu-2"),
    ],
)
def test_what_is_wrong_is_found(
    given: str, asked: Manifest, annotations: dict[str, str], wrong: str
) -> None:
    [complaint] = complaints([node("gpu-1")], [placed(given, asked, annotations=annotations)])
    assert wrong in complaint


def test_a_pod_that_was_bound_without_cards_is_found() -> None:
    made = placed("", SMALL)
    del made["metadata"]["annotations"]["hami.io/vgpu-devices-allocated"]
    [complaint] = complaints([node("gpu-1")], [made])
    assert "without cards" in complaint


def test_a_card_that_was_to_be_one_pods_alone_is_found() -> None:
    pods = [
        placed(f"{FIRST},NVIDIA,1000,100:;", container(cards=1, memory=1_000, cores=100)),
        placed(f"{FIRST},NVIDIA,1000,0:;", container(cards=1, memory=1_000), name="b"),
    ]
    [complaint] = complaints([node("gpu-1")], pods)
    assert "one pod's alone" in complaint


def placed(
    given: str,
    *containers: Manifest,
    name: str = "a",
    first: tuple[Manifest, ...] = (),
    annotations: dict[str, str] | None = None,
) -> Manifest:
    """Return a pod on `gpu-1` whose annotations name these devices."""
    said = {"hami.io/vgpu-node": "gpu-1", "hami.io/vgpu-devices-allocated": given}
    made = pod(name, *containers, first=first, annotations=said | (annotations or {}))
    made["metadata"]["namespace"] = "team"
    made["spec"]["nodeName"] = "gpu-1"
    return made
