"""The results as JSON: written after each part, so that an ended run keeps those that it has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SCHEMA = 1
FILE = "results.json"
SAME = ("driver_kind", "commit", "quick", "library", "hami")
"""Facts of a run that its parts have in common, also if it is resumed."""


class UnreadableResults(Exception):
    """A folder has no results that this version can resume."""


class Report:
    """The results of a run, in a folder."""

    def __init__(self, folder: Path, run: dict[str, Any]) -> None:
        """Begin with the facts of the run."""
        self.folder = folder
        self.content: dict[str, Any] = {"schema": SCHEMA, "run": run, "card": {}, "parts": {}}

    def resume(self) -> list[str]:
        """Take the parts of an earlier run that were measured, and return their names.

        Raises UnreadableResults.
        """
        path = self.folder / FILE
        try:
            content = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise UnreadableResults(f"{path} cannot be resumed: {error}") from error
        if content.get("schema") != SCHEMA:
            raise UnreadableResults(
                f"{path} has schema {content.get('schema')}, and this version writes {SCHEMA}"
            )
        for field in SAME:
            old, new = content["run"].get(field), self.content["run"][field]
            if old != new:
                raise UnreadableResults(
                    f"{path} has {field} {old}, and this run {new}: use another folder"
                )
        kept = {name: part for name, part in content["parts"].items() if part["complete"]}
        self.content["parts"], self.content["card"] = kept, content["card"]
        self.content["run"]["resumed"] = content["run"].get("started")
        return list(kept)

    def put(self, name: str, part: dict[str, Any]) -> None:
        """Add a part, and write everything."""
        self.content["parts"][name] = part
        self.write()

    def write(self) -> None:
        """Replace the file as a whole."""
        path = self.folder / FILE
        fresh = path.with_suffix(".tmp")
        fresh.write_text(json.dumps(self.content, indent=1, ensure_ascii=False) + "\n")
        fresh.replace(path)

    @property
    def parts(self) -> dict[str, dict[str, Any]]:
        """Return the parts by name."""
        parts: dict[str, dict[str, Any]] = self.content["parts"]
        return parts
