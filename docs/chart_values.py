"""The page about the chart's values, from the comments of values.yaml.

`# --` begins the description of the value below it; it ends at the value. A value without one is
described by its name and default alone.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

VALUES: Final = Path(__file__).parent.parent / "deploy" / "chart" / "gpuledger" / "values.yaml"

_KEY: Final = re.compile(r"^( *)([A-Za-z]\w*):(.*)$")
_INDENT: Final = 2
DEFAULT_LENGTH_MAX: Final = 60


def rows() -> Iterator[tuple[str, str, str]]:
    """Return path, default and description of each value, in the order of the file."""
    text = VALUES.read_text()
    values = yaml.safe_load(text)
    path: list[str] = []
    description: list[str] = []
    for line in text.splitlines():
        comment = line.strip()
        if comment.startswith("#"):
            description = _continued(description, comment.removeprefix("#").strip())
            continue
        key = _KEY.match(line)
        if key is not None:
            path = [*path[: len(key[1]) // _INDENT], key[2]]
            default = _default(values, path)
            if default is None:
                continue  # The description is that of the first value of this map.
            yield ".".join(path), default, " ".join(description)
        description = []


def _continued(description: list[str], comment: str) -> list[str]:
    """Return a description with one more line; only `--` begins one."""
    if comment.startswith("--"):
        return [comment.removeprefix("--").strip()]
    return [*description, comment] if description else []


def _default(values: dict[str, Any], path: list[str]) -> str | None:
    """Return the default of a path as JSON; None for a map whose values have rows of their own."""
    value: Any = values
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    if isinstance(value, dict) and value and not _in_one_line(path):
        return None
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= DEFAULT_LENGTH_MAX else "see values.yaml"


def _in_one_line(path: list[str]) -> bool:
    """Return whether a map of values is one value: the file has it in braces."""
    indent = " " * _INDENT * (len(path) - 1)
    return re.search(rf"^{indent}{path[-1]}: \{{.+", VALUES.read_text(), re.MULTILINE) is not None
