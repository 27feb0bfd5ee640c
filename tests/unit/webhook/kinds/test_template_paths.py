"""Paths to templates: their places, and the error of an object with other types."""

from typing import Any

import pytest

from webhook.kinds.object_values import InvalidObject
from webhook.kinds.template_paths import LENGTH_MAX, WALKED_MAX, FieldPath

ROOT = {
    "spec": {
        "template": {"a": 1},
        "tasks": [{"template": 1}, {}, {"template": 2}, None],
        "roles": {"Worker": {"inner": {"template": 3}}, "PS": {}},
        "text": "x",
    }
}


def places_of(path: str) -> list[tuple[str, Any, Any]]:
    return [(place.field, place.value, place.key) for place in FieldPath(path).places(ROOT)]


def test_a_path_leads_to_a_field() -> None:
    assert places_of("spec.template") == [("spec.template", {"a": 1}, None)]


def test_a_path_walks_over_a_list() -> None:
    places = list(FieldPath("spec.tasks[*].template").places(ROOT))
    assert [(place.field, place.value) for place in places] == [
        ("spec.tasks[0].template", 1),
        ("spec.tasks[2].template", 2),
    ]
    assert (places[1].item_field, places[1].item, places[1].key) == (
        "spec.tasks[2]",
        {"template": 2},
        2,
    )


def test_a_path_walks_over_a_map() -> None:
    assert places_of("spec.roles.*.inner.template") == [
        ("spec.roles.Worker.inner.template", 3, "Worker")
    ]


def test_a_path_may_end_with_what_it_walks_over() -> None:
    assert [place.field for place in FieldPath("spec.tasks[*]").places(ROOT)] == [
        "spec.tasks[0]",
        "spec.tasks[1]",
        "spec.tasks[2]",
    ]


@pytest.mark.parametrize("path", ["spec.missing", "spec.missing[*].template", "other.*.template"])
def test_what_is_missing_has_no_places(path: str) -> None:
    assert places_of(path) == []


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("spec.text.template", "spec.text"),
        ("spec.roles[*].template", "spec.roles"),
        ("spec.tasks.*.template", "spec.tasks"),
        ("spec.tasks[*].template.deeper", "spec.tasks[0].template"),
    ],
)
def test_what_a_path_does_not_fit_is_named(path: str, field: str) -> None:
    with pytest.raises(InvalidObject) as caught:
        list(FieldPath(path).places(ROOT))
    assert caught.value.denial.field == field


def test_a_list_may_not_be_endless() -> None:
    with pytest.raises(InvalidObject, match=f"at most {WALKED_MAX}"):
        list(FieldPath("spec[*]").places({"spec": [{}] * (WALKED_MAX + 1)}))


@pytest.mark.parametrize(
    "path",
    [
        "",
        ".spec",
        "spec.",
        "spec..a",
        "spec[0]",
        "spec.a[*].b[*]",
        "spec.*.a[*]",
        "[*]",
        "*.a",
        "a.in.b",
        "a b",
        "a-b",
        "a.b" * LENGTH_MAX,
    ],
)
def test_invalid_path_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="is not a path"):
        FieldPath(path)
