"""Selector conditions: the demands that CEL selectors certainly make of a device.

The selectors of a class or a request are CEL expressions, which are not evaluated. Some parts of
common expressions are necessary conditions: equality of `device.driver`, of a string attribute and
of `device.allowMultipleAllocations`, joined by `&&` and `||`. So a condition never excludes a
device that Kubernetes selects. All other parts are left open.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from ledger.kube.resource_claims.dra_objects import ClaimDeviceSelector

EXPRESSION_MAX: Final = 10_240
"""Longest expression that is read, the bound of the API server."""

READ_MAX: Final = 16_384
"""Most characters that are read of the selectors of one claim or class.

Reading 10,000 characters takes up to 0.1 s, and a claim may have a hundred times as many.
"""

REMEMBERED_MAX: Final = 1_024
"""Entries of the cache; a cluster has few classes."""

DEPTH_MAX: Final = 16
"""Deepest parentheses that are read."""

_TOKEN: Final = re.compile(
    r"""(?P<space>\s+|//[^\n]*)"""
    r"""|(?P<text>(?P<quote>['"])(?!(?P=quote)(?P=quote))[^'"\\\n]*(?P=quote))"""
    r"""|(?P<name>[A-Za-z_][A-Za-z_0-9]*)"""
    r"""|(?P<sign>&&|\|\||[=!<>]=|\.\?|[^'"\\])""",
    re.DOTALL,
)
_OPEN: Final = {"(": ")", "[": "]", "{": "}"}
_STRING: Final = r"'([^']*)'"
_ATTRIBUTE: Final = rf"device \. attributes \[ {_STRING} \] (?:\. (\w+)|\[ {_STRING} \])"
_DRIVER_IS: Final = re.compile(
    rf"device \. driver == {_STRING}|{_STRING} == device \. driver", re.DOTALL
)
_DRIVER_IN: Final = re.compile(rf"device \. driver in \[ ({_STRING}(?: , {_STRING})*) \]")
_EQUALS: Final = re.compile(rf"{_ATTRIBUTE} == {_STRING}|{_STRING} == {_ATTRIBUTE}", re.DOTALL)
_SHARED: Final = re.compile(
    r"(?P<no>! )?device \. allowMultipleAllocations(?: (?P<sign>[=!]=) (?P<value>true|false))?"
)


class DeviceCondition(msgspec.Struct, frozen=True):
    """A necessary condition of devices.

    `drivers` are the possible drivers, None for any. `shared` is whether the device allows several
    allocations, None for either. `attributes` are required strings by domain and name. If `exact`
    is true, the selectors accept every device that meets the condition.
    """

    drivers: frozenset[str] | None = None
    shared: bool | None = None
    attributes: frozenset[tuple[str, str, str]] = frozenset()
    exact: bool = False


ANY_DEVICE: Final = DeviceCondition(exact=True)
"""The condition of no selectors."""

OPEN: Final = DeviceCondition()
"""The condition of an expression that is not read."""


def condition_of(
    selectors: Iterable[ClaimDeviceSelector] | None, most: int = READ_MAX
) -> DeviceCondition:
    """Return a condition that holds for each device which all selectors accept.

    A selector with which they have more than `most` characters is not read, nor are those after it.
    """
    condition = ANY_DEVICE
    for text in _texts(selectors):
        most -= len(text)
        condition = both(condition, _of_text(text) if most >= 0 else OPEN)
    return condition


def characters_of(selectors: Iterable[ClaimDeviceSelector] | None) -> int:
    """Return the number of characters of all selectors."""
    return sum(map(len, _texts(selectors)))


def _texts(selectors: Iterable[ClaimDeviceSelector] | None) -> Iterator[str]:
    for selector in selectors or ():
        yield selector.cel.expression if selector.cel is not None else ""


def both(left: DeviceCondition, right: DeviceCondition) -> DeviceCondition:
    """Return the condition of devices that meet two conditions."""
    shared, drivers = left.shared, left.drivers
    if right.drivers is not None:
        drivers = right.drivers if drivers is None else drivers & right.drivers
    if right.shared is not None:
        # No device is both: without a driver, the condition accepts none.
        drivers = frozenset() if shared is not None and shared != right.shared else drivers
        shared = right.shared
    exact = left.exact and right.exact
    return DeviceCondition(drivers, shared, left.attributes | right.attributes, exact)


def _either(left: DeviceCondition, right: DeviceCondition) -> DeviceCondition:
    drivers = None
    if left.drivers is not None and right.drivers is not None:
        drivers = left.drivers | right.drivers
    shared = left.shared if left.shared == right.shared else None
    return DeviceCondition(drivers, shared, left.attributes & right.attributes)


@lru_cache(maxsize=REMEMBERED_MAX)
def _of_text(text: str) -> DeviceCondition:
    tokens = _tokens(text)
    return OPEN if tokens is None else _of_tokens(tokens, DEPTH_MAX)


def _tokens(text: str) -> list[str] | None:
    """Return the tokens with strings in single quotes, None for an expression that is not read.

    Strings with escapes or quotes, and strings in three quotes, are not read.
    """
    if len(text) > EXPRESSION_MAX:
        return None
    tokens: list[str] = []
    at = 0
    while at < len(text):
        form = _TOKEN.match(text, at)
        if form is None:
            return None
        at = form.end()
        if form["text"]:
            tokens.append(f"'{form['text'][1:-1]}'")
        elif not form["space"]:
            tokens.append(form[0])
    return tokens


def _of_tokens(tokens: Sequence[str], depth: int) -> DeviceCondition:
    """Return the condition of an expression, or of a part of one without its parentheses."""
    parts = _split(tokens, "||") if tokens and depth else None
    if parts is None or any("?" in _top(part) for part in parts):
        return OPEN
    if len(parts) > 1:
        condition = _of_tokens(parts[0], depth - 1)
        for part in parts[1:]:
            condition = _either(condition, _of_tokens(part, depth - 1))
        return condition
    conjuncts = _split(tokens, "&&") or []
    if len(conjuncts) == 1:
        inner = tokens[0] == "(" and tokens[-1] == ")" and not _top(tokens)
        return _of_tokens(tokens[1:-1], depth - 1) if inner else _of_atom(" ".join(tokens))
    condition = ANY_DEVICE
    for conjunct in conjuncts:
        condition = both(condition, _of_tokens(conjunct, depth - 1))
    return condition


def _split(tokens: Sequence[str], sign: str) -> list[Sequence[str]] | None:
    """Return the parts between a sign outside of parentheses, None if these are not balanced."""
    parts: list[Sequence[str]] = []
    closing: list[str] = []
    start = 0
    for at, token in enumerate(tokens):
        if token in _OPEN:
            closing.append(_OPEN[token])
        elif token in (")", "]", "}"):
            if not closing or closing.pop() != token:
                return None
        elif token == sign and not closing:
            parts.append(tokens[start:at])
            start = at + 1
    parts.append(tokens[start:])
    return None if closing else parts


def _top(tokens: Sequence[str]) -> list[str]:
    """Return the tokens outside of all parentheses."""
    depth = 0
    top = []
    for token in tokens:
        depth += token in _OPEN
        if not depth:
            top.append(token)
        depth -= token in (")", "]", "}")
    return top


def _of_atom(text: str) -> DeviceCondition:
    """Return the condition of a single comparison; a comparison that is not known is open."""
    form = _DRIVER_IS.fullmatch(text)
    if form is not None:
        return DeviceCondition(frozenset((form[1] or form[2],)), exact=True)
    form = _DRIVER_IN.fullmatch(text)
    if form is not None:
        return DeviceCondition(frozenset(re.findall(_STRING, form[1])), exact=True)
    form = _EQUALS.fullmatch(text)
    if form is not None:
        domain, dotted, quoted, value = form.groups()[:4]
        if domain is None:
            value, domain, dotted, quoted = form.groups()[4:]
        required = (domain, dotted or quoted, value)
        return DeviceCondition(attributes=frozenset((required,)), exact=True)
    form = _SHARED.fullmatch(text)
    return OPEN if form is None else _sharing(form)


def _sharing(form: re.Match[str]) -> DeviceCondition:
    accepted = []
    for shared in (False, True):
        value = shared != bool(form["no"])
        if form["sign"]:
            value = (value == (form["value"] == "true")) == (form["sign"] == "==")
        if value:
            accepted.append(shared)
    return DeviceCondition(shared=accepted[0], exact=True)
