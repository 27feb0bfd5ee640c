"""Manifest input: reads a given file, or standard input, as JSON."""

import sys
from pathlib import Path
from typing import Final

import msgspec
import yaml

from gpuledger.cli.exit_codes import CommandError, Exit

STANDARD_INPUT: Final = "-"


def name_of(file: str) -> str:
    """Return the name of a file for a message."""
    return "standard input" if file == STANDARD_INPUT else file or "the file ''"


def read(file: str, bytes_max: int) -> bytes:
    """Return a file's object as JSON; YAML is converted. Raises CommandError naming the file."""
    return as_json(_content(file, bytes_max), name_of(file))


def as_json(content: bytes, name: str) -> bytes:
    """Return the one object of a document as JSON; YAML is converted. Raises CommandError with the
    document's name.
    """
    if not content.strip():
        raise CommandError(Exit.USAGE, f"{name} is empty: give one object, as JSON or YAML")
    try:
        value, encoded = _decoded(content, name)
    except yaml.YAMLError as error:
        raise CommandError(
            Exit.USAGE, f"{name} is neither JSON nor YAML: {_explained(error)}"
        ) from error
    except (TypeError, ValueError) as error:
        raise CommandError(Exit.USAGE, f"{name} cannot be written as JSON: {error}") from error
    except RecursionError as error:
        raise CommandError(Exit.USAGE, f"{name} is nested too deeply for a Pod") from error
    _must_be_one(value, name)
    return encoded


def _content(file: str, bytes_max: int) -> bytes:
    try:
        if file == STANDARD_INPUT:
            content = sys.stdin.buffer.read(bytes_max + 1)
        else:
            with Path(file).open("rb") as opened:
                content = opened.read(bytes_max + 1)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise CommandError(
            Exit.USAGE, f"{name_of(file)} cannot be read: {why}; check the path"
        ) from error
    if len(content) > bytes_max:
        raise CommandError(
            Exit.USAGE,
            f"{name_of(file)} has more than {bytes_max} bytes (setting review_bytes_max)",
        )
    return content


def _decoded(content: bytes, name: str) -> tuple[object, bytes]:
    """Return the value of JSON or YAML, and its JSON. Raises YAMLError, TypeError,
    CommandError."""
    try:
        return msgspec.json.decode(content), content
    except (msgspec.MsgspecError, UnicodeDecodeError):
        pass
    _refuse_aliases(content, name)
    documents = [document for document in yaml.safe_load_all(content) if document is not None]
    if len(documents) > 1:
        raise CommandError(
            Exit.USAGE, f"{name} holds {len(documents)} documents, separated by ---: give one"
        )
    value = documents[0] if documents else None
    return value, msgspec.json.encode(value)


def _must_be_one(value: object, name: str) -> None:
    """Raise CommandError unless the file has exactly one object."""
    wrong = ""
    if value is None:
        wrong = "holds nothing but comments"
    elif isinstance(value, list):
        wrong = f"holds a list of {len(value)}"
    elif not isinstance(value, dict):
        wrong = "holds no object, but plain text" if isinstance(value, str) else "holds no object"
    elif str(value.get("kind", "")).endswith("List") and isinstance(value.get("items"), list):
        wrong = f"holds a {value['kind']} of {len(value['items'])}"
    if wrong:
        raise CommandError(Exit.USAGE, f"{name} {wrong}: give one object, as JSON or YAML")


def _explained(error: yaml.YAMLError) -> str:
    """Return one line with the error in YAML and its place."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        what = ", ".join(text for text in (error.context, error.problem) if text)
        return f"line {mark.line + 1}, column {mark.column + 1}: {what}"
    if isinstance(error, yaml.reader.ReaderError):
        return "it is not text in UTF-8"
    return " ".join(str(error).split())


def _refuse_aliases(content: bytes, name: str) -> None:
    """Refuse aliases, by which some hundred bytes of YAML can become gigabytes. Raises
    CommandError, YAMLError.
    """
    for event in yaml.parse(content, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent):
            raise CommandError(
                Exit.USAGE, f"{name}: write *{event.anchor} out; aliases are not supported"
            )
