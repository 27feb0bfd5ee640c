"""The texts about settings: for help texts, the reference page and problems.

They are derived from the settings, so every setting has a description.
"""

from collections.abc import Iterator
from typing import Any, Final, Literal, get_args, get_origin
from urllib.parse import urlsplit, urlunsplit

import msgspec
from msgspec import Meta

from ledger.runtime.settings.setting_patterns import (
    DOMAIN_PATTERN,
    HEADER_PATTERN,
    HOST_PORT_PATTERN,
    LABEL_VALUE_PATTERN,
    NAME_PATTERN,
    OPTIONAL_HEADER_PATTERN,
    OPTIONAL_HOST_PORT_PATTERN,
    OPTIONAL_NAME_PATTERN,
    POD_NAME_PATTERN,
    SERVICE_URL_PATTERN,
    WEBHOOK_URL_PATTERN,
)
from ledger.runtime.settings.settings import DEFAULTS, NAMES, TYPES

MASK: Final = "********"

_SHAPES: Final = {
    NAME_PATTERN: "a name of a-z, 0-9 and - with at most 63 characters",
    OPTIONAL_NAME_PATTERN: "a name of a-z, 0-9 and - with at most 63 characters, or none",
    HOST_PORT_PATTERN: "HOST:PORT",
    OPTIONAL_HOST_PORT_PATTERN: "HOST:PORT, or none",
    SERVICE_URL_PATTERN: "a URL without a path that begins with https://, or http:// on loopback",
    WEBHOOK_URL_PATTERN: "a URL without a path that begins with https://",
    LABEL_VALUE_PATTERN: "the value of a label with at most 63 characters, or none",
    POD_NAME_PATTERN: "the name of a pod, or none",
    DOMAIN_PATTERN: "a name of A-Z, a-z, 0-9, _ and - with at most 64 characters, or none",
    HEADER_PATTERN: "the name of a header",
    OPTIONAL_HEADER_PATTERN: "the name of a header, or none",
}
"""Descriptions of the patterns; without one, a wrong value is answered with `string`."""


class Documentation(msgspec.Struct, frozen=True):
    """The documentation of one setting. `default` is rendered as in a TOML file."""

    name: str
    option: str
    environment: str
    type: str
    default: str
    description: str


ENVIRONMENT_PREFIX: Final = "GPULEDGER_"


def documentation() -> Iterator[Documentation]:
    """Yield every setting, in the order of the struct."""
    for name in NAMES:
        yield Documentation(
            name=name,
            option=option_of(name),
            environment=environment_name(name),
            type=_type_text(get_args(TYPES[name])[0]),
            default=rendered(getattr(DEFAULTS, name)),
            description=meta(name).description or "",
        )


def meta(name: str) -> Meta:
    """Return the bounds and texts of a setting."""
    annotation = get_args(TYPES[name])[1]
    assert isinstance(annotation, Meta), f"the setting {name} is not documented"
    return annotation


def is_list(name: str) -> bool:
    """Return whether a setting takes several values, separated by commas in a text."""
    return get_origin(get_args(TYPES[name])[0]) is tuple


def wanted(name: str) -> str:
    """Return a text with the values of a setting, its bounds and an example."""
    described = meta(name)
    bounds = [
        f"{word} {bound}"
        for word, bound in (
            ("at least", described.ge),
            ("above", described.gt),
            ("at most", described.le),
            ("below", described.lt),
        )
        if bound is not None
    ]
    kind = _SHAPES.get(described.pattern or "", _type_text(get_args(TYPES[name])[0]))
    example = described.examples[0] if described.examples else getattr(DEFAULTS, name)
    return f"{' '.join([kind, *bounds])}, for example {rendered(example)}: {described.description}"


def environment_name(name: str) -> str:
    """Return the environment variable of a setting."""
    return ENVIRONMENT_PREFIX + name.upper()


def rendered(value: object) -> str:
    """Render a value as a TOML file would hold it."""
    return msgspec.json.encode(value).decode()


def masked(name: str, value: object) -> object:
    """Return the value without secrets and passwords within URLs."""
    if (meta(name).extra or {}).get("secret"):
        return MASK if value else value
    if name == "nats" and isinstance(value, list | tuple):
        return [_without_password(str(url)) for url in value]
    if name == "nats" and isinstance(value, str):
        return ",".join(_without_password(url) for url in value.split(","))
    return value


def _without_password(url: str) -> str:
    if "@" not in url:
        return url
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{MASK}@{parts.netloc.rpartition('@')[2]}"))


def option_of(name: str) -> str:
    """Return the command-line option of a setting, also for settings of earlier versions."""
    option = "--" + name.replace("_", "-")
    if name in TYPES and get_args(TYPES[name])[0] is bool:
        return f"{option} / --no-{option[2:]}"
    return option


def _type_text(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return " | ".join(str(choice) for choice in get_args(kind))
    if get_origin(kind) is tuple:
        return "list of strings"
    names = {str: "string", int: "integer", float: "number", bool: "true or false"}
    return names[kind]
