"""Manifest document: one object, given as JSON or YAML, as JSON.

Aliases are refused, because some hundred bytes with them can become gigabytes.
"""

import asyncio
import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import msgspec
import yaml

PAUSE_STEPS: Final = 16
PAUSE_SECONDS: Final = 0.0005
"""While YAML is read, other threads get the processor after so many steps, for so long."""

LINE_SECONDS: Final = 2.0
"""Deadline of finding the line of a field."""

SCALAR_ERRORS: Final = (TypeError, ValueError, ArithmeticError, LookupError, AttributeError)
"""Errors of PyYAML about a scalar, such as the date 2026-99-99 or `!!int ""`; it documents none."""

_FINDING: Final = ThreadPoolExecutor(1, "find-line")

_STEPS: Final = re.compile(r"(?P<name>[^.\[\]]+)|\[(?P<index>[^\]]*)\]")
_ONE: Final = "give one object, as JSON or YAML"


class ManifestProblem(ValueError):
    """A document is not one object. The message names it, the place in it and the remedy."""


def as_json(content: bytes, name: str, pause: Callable[[], None] = lambda: None) -> bytes:
    """Return the JSON of the one object in a document, which messages call `name`.

    `pause` is called at each step of reading YAML, and may raise. Raises ManifestProblem.
    """
    if not content.strip():
        raise ManifestProblem(f"{name} is empty: {_ONE}")
    try:
        value, encoded = _decoded(content, name, pause)
    except yaml.YAMLError as error:
        raise ManifestProblem(f"{name} is neither JSON nor YAML: {_explained(error)}") from error
    except RecursionError as error:
        raise ManifestProblem(f"{name} is nested too deeply for a Pod") from error
    if problem := _not_one(value):
        raise ManifestProblem(f"{name} {problem}: {_ONE}")
    return encoded


def is_json(content: bytes) -> bool:
    """Return whether a document is JSON, which is read at once; YAML takes much longer."""
    try:
        msgspec.json.decode(content, type=msgspec.Raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return True


def pausing_until(until: float) -> Callable[[], None]:
    """Return a `pause` that gives the processor to other threads at some calls.

    It raises TimeoutError after `until`, a monotonic time.
    """
    steps = 0

    def pause() -> None:
        nonlocal steps
        steps += 1
        if steps % PAUSE_STEPS == 0:
            time.sleep(PAUSE_SECONDS)
            if time.monotonic() > until:
                raise TimeoutError

    return pause


async def line_in_thread(content: bytes, field: str) -> int:
    """Return `line_of`, found in a thread; 0 if that takes longer than `LINE_SECONDS`.

    One line is found at a time, so that many invalid documents delay nothing else.
    """
    pause = pausing_until(time.monotonic() + LINE_SECONDS)
    loop = asyncio.get_running_loop()
    try:
        return await loop.run_in_executor(_FINDING, line_of, content, field, pause)
    except TimeoutError:
        return 0


def line_of(content: bytes, field: str, pause: Callable[[], None] = lambda: None) -> int:
    """Return the line of a field in a document, from 1 on, or of the deepest part that exists.

    `field` is a path such as `$.spec.containers[0].name`, and `pause` as in `as_json`. Returns 0 if
    the document is not one of YAML or JSON.
    """
    try:
        node = yaml.compose(content, Loader=_loader("", pause))
    except (yaml.YAMLError, RecursionError, *SCALAR_ERRORS):
        return 0
    line = 0
    for step in _STEPS.finditer(field.removeprefix("$")):
        line = node.start_mark.line + 1 if node is not None and not line else line
        child = _child(node, step["name"] or step["index"])
        if child is None:
            break
        line, node = child
    return line


def _child(node: yaml.Node | None, step: str) -> tuple[int, yaml.Node] | None:
    """Return the line and the value of a key or an index in a node, None if it has none."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == step:
                return key.start_mark.line + 1, value
    if isinstance(node, yaml.SequenceNode) and step.isdecimal() and int(step) < len(node.value):
        value = node.value[int(step)]
        return value.start_mark.line + 1, value
    return None


def _decoded(content: bytes, name: str, pause: Callable[[], None]) -> tuple[object, bytes]:
    """Return the value of JSON or YAML, and its JSON. Raises YAMLError and ManifestProblem."""
    try:
        return msgspec.json.decode(content), content
    except (msgspec.MsgspecError, UnicodeDecodeError):
        pass
    documents = [document for document in _documents(content, name, pause) if document is not None]
    if len(documents) > 1:
        raise ManifestProblem(
            f"{name} holds {len(documents)} documents, separated by ---: give one"
        )
    value = documents[0] if documents else None
    try:
        return value, msgspec.json.encode(value)
    except (TypeError, ValueError) as error:
        raise ManifestProblem(f"{name} cannot be written as JSON: {error}") from error


def _documents(content: bytes, name: str, pause: Callable[[], None]) -> list[object]:
    """Return the documents of YAML. Raises YAMLError and ManifestProblem."""

    try:
        return list(yaml.load_all(content, Loader=_loader(name, pause)))
    except (yaml.YAMLError, ManifestProblem):
        raise
    except SCALAR_ERRORS as error:
        raise ManifestProblem(f"{name} is not valid YAML: {error}") from error


def _loader(name: str, pause: Callable[[], None]) -> type[yaml.SafeLoader]:
    """Return a loader that calls `pause` at each event, refuses aliases, and names the places of
    values that fit no type.
    """

    class Loader(yaml.SafeLoader):
        def get_event(self) -> Any:
            pause()
            event = super().get_event()  # type: ignore[no-untyped-call]
            if isinstance(event, yaml.AliasEvent):
                raise ManifestProblem(
                    f"{name}: {_line(event.start_mark)}write *{event.anchor} out; aliases are not"
                    " supported"
                )
            return event

        def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
            try:
                return super().construct_object(node, deep)
            except SCALAR_ERRORS as error:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the value does not fit its type: {error}", node.start_mark
                ) from error

    return Loader


def _not_one(value: object) -> str:
    """Return why a value is not one object, empty if it is one."""
    if value is None:
        return "holds nothing but comments"
    if isinstance(value, list):
        return f"holds a list of {len(value)}"
    if not isinstance(value, dict):
        return "holds no object, but plain text" if isinstance(value, str) else "holds no object"
    if str(value.get("kind", "")).endswith("List") and isinstance(value.get("items"), list):
        return f"holds a {value['kind']} of {len(value['items'])}"
    return ""


def _explained(error: yaml.YAMLError) -> str:
    """Return one line with the error in YAML and its place."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        what = ", ".join(text for text in (error.context, error.problem) if text)
        return f"line {mark.line + 1}, column {mark.column + 1}: {what}"
    if isinstance(error, yaml.reader.ReaderError):
        return "it is not text in UTF-8"
    return " ".join(str(error).split())


def _line(mark: Any) -> str:
    return f"line {mark.line + 1}: " if mark is not None else ""


class _Place(msgspec.Struct):
    namespace: str = ""


class _Namespaced(msgspec.Struct):
    metadata: _Place | None = None
    request: _Place | None = None


def namespace_in(body: bytes) -> str:
    """Return the namespace of a manifest or a review, empty if it has none."""
    try:
        manifest = msgspec.json.decode(body, type=_Namespaced)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ""
    return next(
        (part.namespace for part in (manifest.request, manifest.metadata) if part is not None), ""
    )
