"""Traits of pods, templates and places: what selecting quotas see of them."""

from typing import Any

import msgspec
import pytest

from ledger.kube.api.objects import ObjectMeta, Pod
from ledger.kube.requests import namespace_traits
from ledger.kube.requests.pod_traits import (
    RECORDED_MAX,
    bounded_traits,
    traits_of,
    traits_of_template,
)
from ledger.kube.requests.recorded_labels import VOLATILE, RecordedLabels, labels_of

BUSY = {"containers": [{"resources": {"requests": {"cpu": "1"}}}]}


def read(spec: dict[str, Any] | None = None, **labels: str) -> list[str]:
    """Return the items of a pod's traits; the default spec requests one processor."""
    pod = {"metadata": {"labels": labels or None}, "spec": {**BUSY, **(spec or {})}}
    text = traits_of(msgspec.convert(pod, Pod), labels_of(dict.fromkeys(labels, 0)))
    return text.split(",") if text else []


def template(labels: dict[str, str], root: dict[str, str] | None = None, **spec: Any) -> str:
    pod = msgspec.convert({"spec": {**BUSY, **spec}}, Pod)
    named = labels_of(dict.fromkeys((*labels, *(root or ())), 0))
    return traits_of_template(ObjectMeta(labels=labels), pod.spec, root, named)


def test_labels_are_traits_and_one_without_a_value_is_its_key() -> None:
    assert read(None, app="web", marked="") == ["app=web", "marked"]


def test_a_pod_without_anything_to_select_by_has_no_traits() -> None:
    assert read() == []


@pytest.mark.parametrize("label", sorted(VOLATILE))
def test_labels_are_not_recorded_when_they_differ_between_a_workloads_pods(label: str) -> None:
    assert read(None, app="web", **{label: "x"}) == ["app=web"]


def test_the_priority_class_is_a_trait() -> None:
    assert read({"priorityClassName": "high"}) == ["!priority=high"]


@pytest.mark.parametrize(
    ("seconds", "traits"), [(0, ["!terminating"]), (5, ["!terminating"]), (None, [])]
)
def test_who_has_a_deadline_is_terminating(seconds: int | None, traits: list[str]) -> None:
    assert read({"activeDeadlineSeconds": seconds}) == traits


@pytest.mark.parametrize(
    ("spec", "best_effort"),
    [
        ({"containers": [{}]}, True),
        ({"containers": [{"resources": {"limits": {"nvidia.com/gpu": 1}}}]}, True),
        ({"containers": [{"resources": {"limits": {"cpu": "0"}}}]}, True),
        ({"containers": [{"resources": {"limits": {"cpu": "0m", "memory": 0}}}]}, True),
        ({"containers": [{"resources": {"limits": {"memory": "1"}}}]}, False),
        ({"containers": [{"resources": {"requests": {"cpu": "1m"}}}]}, False),
        ({"containers": [{"resources": {"limits": {"cpu": "?"}}}]}, False),
        ({"containers": [{}], "initContainers": [{"resources": {"limits": {"cpu": 1}}}]}, False),
        ({"containers": [{}], "resources": {"requests": {"memory": "1Gi"}}}, False),
    ],
)
def test_best_effort_is_who_names_no_processor_and_no_memory(
    spec: dict[str, Any], best_effort: bool
) -> None:
    assert read(spec) == (["!best-effort"] if best_effort else [])


TERM = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


@pytest.mark.parametrize(
    ("affinity", "crosses"),
    [
        (None, False),
        ({"nodeAffinity": {TERM: {"nodeSelectorTerms": []}}}, False),
        ({"podAffinity": {TERM: [{"topologyKey": "x"}]}}, False),
        ({"podAffinity": {TERM: [{"namespaces": []}]}}, False),
        ({"podAffinity": {TERM: [{}, {"namespaces": ["other"]}]}}, True),
        ({"podAntiAffinity": {TERM: [{"namespaceSelector": {}}]}}, True),
        (
            {"podAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": {"namespaces": ["a"]}}]}},
            True,
        ),
        (
            {
                "podAntiAffinity": {
                    PREFERRED: [
                        {"podAffinityTerm": {"namespaceSelector": {"matchLabels": {"a": "b"}}}}
                    ]
                }
            },
            True,
        ),
    ],
)
def test_an_affinity_to_pods_of_other_namespaces_is_a_trait(
    affinity: dict[str, Any] | None, crosses: bool
) -> None:
    assert read({"affinity": affinity}) == (["!cross-namespace-affinity"] if crosses else [])


def test_traits_are_sorted_so_that_equal_ones_are_the_same_text() -> None:
    assert read({"priorityClassName": "p", "containers": []}, b="1", a="2") == [
        "!best-effort",
        "!priority=p",
        "a=2",
        "b=1",
    ]


def test_the_labels_of_a_root_stand_above_those_of_its_template() -> None:
    text = template({"team": "a", "app": "web"}, {"team": "b", "tier": "x"}, priorityClassName="p")
    assert text == "!priority=p,app=web,team=b,tier=x"
    assert template({"team": "a"}) == "team=a"


@pytest.mark.parametrize(
    "labels",
    [
        {"app": "a,!priority=high"},
        {"app": "a=b"},
        {"!priority": "high"},
        {"app": "x" * 64},
        {"app": "-x"},
        {"a,b": "c"},
        {"": "x"},
        {"pod-template-hash": "x"},
    ],
)
def test_template_labels_are_left_out_when_invalid(labels: dict[str, str]) -> None:
    assert template({**labels, "team": "a"}) == "team=a"
    assert template({"team": "a"}, labels) == "team=a"


@pytest.mark.parametrize("name", ["high,team=b", "High", "x" * 300, "!"])
def test_template_priority_class_is_left_out_when_invalid(name: str) -> None:
    assert template({"team": "a"}, priorityClassName=name) == "team=a"


def test_a_namespace_has_its_name_and_its_labels() -> None:
    assert namespace_traits.of_namespace("team-a", {"env": "prod"}) == "!name=team-a,env=prod"
    assert namespace_traits.of_namespace("team-a", None) == "!name=team-a"


def test_a_cluster_has_its_name_its_region_and_its_labels() -> None:
    assert (
        namespace_traits.of_cluster("east-1", "eu", {"tier": "1"})
        == "!name=east-1,!region=eu,tier=1"
    )
    assert namespace_traits.of_cluster("east-1", "", {}) == "!name=east-1"


def test_only_labels_that_are_selected_by_are_recorded() -> None:
    many = {f"k{number}": "x" * 63 for number in range(20_000)}
    pod = msgspec.convert({"metadata": {"labels": {**many, "team": "a"}}, "spec": BUSY}, Pod)
    assert traits_of(pod) == ""
    assert traits_of(pod, labels_of({"team": 2, "tier": 1, "!read": 3})) == "!read=3,team=a"
    meta = ObjectMeta(labels={**many, "team": "a"})
    assert (
        traits_of_template(meta, pod.spec, many, RecordedLabels(("team",), 1)) == "!read=1,team=a"
    )


def test_labels_become_distinct_digests_when_too_long() -> None:
    trait, other = (f"a={'x' * RECORDED_MAX}{end}" for end in "ab")
    assert bounded_traits(("team=a", "team=b", "team=a")) == ("team=a", "team=b")
    [digest] = bounded_traits((trait, "team=a"))
    assert digest.startswith("!unread=")
    assert len(digest) < 64
    assert bounded_traits((other, "team=a")) != (digest,)


def test_a_place_with_too_many_labels_keeps_its_name() -> None:
    many = {f"k{number}": "x" * 63 for number in range(1_000)}
    text = namespace_traits.of_namespace("team", many)
    assert text.startswith("!name=team,!unread=")
    assert len(text) < 100
