"""Manifests: the file that a command is given, or standard input, as JSON."""

import sys
from pathlib import Path
from typing import Final

import msgspec
import yaml

from gpuledger.exits import Exit, Stop

_STANDARD_INPUT: Final = "-"


def read(file: str, bytes_max: int) -> bytes:
    """Return a file's content as JSON; YAML is turned into it. Raises Stop naming the file."""
    try:
        if file == _STANDARD_INPUT:
            content = sys.stdin.buffer.read(bytes_max + 1)
        else:
            with Path(file).open("rb") as opened:
                content = opened.read(bytes_max + 1)
    except OSError as error:
        raise Stop(Exit.USAGE, f"{file} cannot be read: {error.strerror}") from error
    if len(content) > bytes_max:
        raise Stop(Exit.USAGE, f"{file} has more than {bytes_max} bytes (setting review_bytes_max)")
    if content.lstrip().startswith(b"{"):
        return content
    try:
        _refuse_aliases(content, file)
        return msgspec.json.encode(yaml.safe_load(content))
    except (yaml.YAMLError, TypeError, UnicodeDecodeError) as error:
        raise Stop(Exit.USAGE, f"{file} is neither JSON nor YAML: {error}") from error
    except RecursionError as error:
        raise Stop(Exit.USAGE, f"{file} is nested too deeply for a Pod") from error


def _refuse_aliases(content: bytes, file: str) -> None:
    """Refuse what some hundred bytes of YAML can make gigabytes of. Raises Stop, YAMLError."""
    for event in yaml.parse(content, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent):
            raise Stop(Exit.USAGE, f"{file}: write *{event.anchor} out, aliases are not read")
