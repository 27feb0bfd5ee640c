"""Template paths: `spec.template`, `spec.tasks[*].template`, `spec.roles.*.template`.

A path may visit the elements of one list (`[*]`) or the values of one map (`.*`). The expressions
of the pod set read the element as `item`, and its index or key as `key`.
"""

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from webhook.kinds.object_values import Json, step_into, wrong_type

LENGTH_MAX: Final = 200
"""Maximum length of a path, in characters."""

WALKED_MAX: Final = 1_000
"""Maximum number of elements that one path visits."""

_NAME: Final = r"(?!(?:in|true|false|null)\b)[A-Za-z_][A-Za-z0-9_]*"
_FORM: Final = re.compile(
    rf"(?P<before>{_NAME}(?:\.{_NAME})*?)(?:(?P<walk>\[\*\]|\.\*)(?P<after>(?:\.{_NAME})*))?"
)


class PathMatch(msgspec.Struct, frozen=True, gc=False):
    """One match of a path: its field and value, and the visited element."""

    field: str
    value: Json
    item_field: str = ""
    item: Json = None
    key: Json = None


class FieldPath:
    """A compiled path: `before` ends at the visited list or map, `after` begins at an element."""

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
        """Yield the matches of the path in an object.

        Raises InvalidObject if a step meets a value of the wrong type.
        """
        field, value = _followed("", root, self.before)
        if value is None:
            return
        if not self.walk:
            yield PathMatch(field, value)
            return
        for item_field, key, item in self._elements(field, value):
            end, reached = _followed(item_field, item, self.after)
            if reached is not None:
                yield PathMatch(end, reached, item_field, item, key)

    def _elements(self, field: str, value: Json) -> Iterator[tuple[str, str | int, Json]]:
        elements: list[tuple[str, str | int, Json]]
        if self.walk == "[*]" and isinstance(value, list):
            elements = [(f"{field}[{key}]", key, item) for key, item in enumerate(value)]
        elif self.walk == ".*" and isinstance(value, dict):
            elements = [(f"{field}.{key}", key, item) for key, item in value.items()]
        else:
            raise wrong_type(field, value, "a list" if self.walk == "[*]" else "an object")
        if len(elements) > WALKED_MAX:
            raise wrong_type(field, f"{len(elements)} elements", f"at most {WALKED_MAX}")
        yield from elements


def _followed(field: str, value: Json, steps: tuple[str, ...]) -> tuple[str, Json]:
    """Return the field at the end of `steps`, and its value."""
    for step in steps:
        value = step_into(value, step, field or "the object")
        field = f"{field}.{step}" if field else step
    return field, value
