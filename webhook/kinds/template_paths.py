"""Template paths: `spec.template`, `spec.tasks[*].template`, `spec.roles.*.template`.

A path may walk over the elements of one list (`[*]`) or the values of one map (`.*`); expressions
beside it see the element as `item` and its index or key as `key`.
"""

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from webhook.kinds.object_values import Json, step_into, wrong_type

LENGTH_MAX: Final = 200
"""Longest path, characters."""

WALKED_MAX: Final = 1_000
"""Most elements that one path walks over."""

_NAME: Final = r"(?!(?:in|true|false|null)\b)[A-Za-z_][A-Za-z0-9_]*"
_FORM: Final = re.compile(
    rf"(?P<before>{_NAME}(?:\.{_NAME})*?)(?:(?P<walk>\[\*\]|\.\*)(?P<after>(?:\.{_NAME})*))?"
)


class PathMatch(msgspec.Struct, frozen=True, gc=False):
    """One place that a path leads to: its field and value, and the element walked through."""

    field: str
    value: Json
    item_field: str = ""
    item: Json = None
    key: Json = None


class FieldPath:
    """A compiled path. `before` leads to the list or map that is walked, `after` on from there."""

    __slots__ = ("after", "before", "text", "walk")

    def __init__(self, text: str) -> None:
        """Compile a path. Raises ValueError that names the mistake."""
        form = _FORM.fullmatch(text) if len(text) <= LENGTH_MAX else None
        if form is None:
            raise ValueError(
                f"{text[:LENGTH_MAX]!r} is not a path: write names joined by dots, with at most one"
                " [*] for the elements of a list or one .* for the values of a map"
            )
        self.text = text
        self.before = tuple(form["before"].split("."))
        self.walk: str = form["walk"] or ""
        self.after = tuple((form["after"] or "").split(".")[1:])

    def places(self, root: Json) -> Iterator[PathMatch]:
        """Yield the places that exist in an object.

        Raises InvalidObject where a step meets a value of the wrong type.
        """
        field, value = _followed("", root, self.before)
        if value is None:
            return
        if not self.walk:
            yield PathMatch(field, value)
            return
        for item_field, key, item in self._elements(field, value):
            end, found = _followed(item_field, item, self.after)
            if found is not None:
                yield PathMatch(end, found, item_field, item, key)

    def _elements(self, field: str, value: Json) -> Iterator[tuple[str, str | int, Json]]:
        found: list[tuple[str, str | int, Json]]
        if self.walk == "[*]" and isinstance(value, list):
            found = [(f"{field}[{key}]", key, item) for key, item in enumerate(value)]
        elif self.walk == ".*" and isinstance(value, dict):
            found = [(f"{field}.{key}", key, item) for key, item in value.items()]
        else:
            raise wrong_type(field, value, "a list" if self.walk == "[*]" else "an object")
        if len(found) > WALKED_MAX:
            raise wrong_type(field, f"{len(found)} elements", f"at most {WALKED_MAX}")
        yield from found


def _followed(field: str, value: Json, steps: tuple[str, ...]) -> tuple[str, Json]:
    """Return the field that steps lead to from a field, and its value."""
    for step in steps:
        value = step_into(value, step, field or "the object")
        field = f"{field}.{step}" if field else step
    return field, value
