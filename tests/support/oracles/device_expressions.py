"""Device expressions: the few forms of CEL that the tests use, evaluated without a library."""

import re
from typing import Any, Final

_DRIVER: Final = re.compile(r"device\.driver == '([^']+)'")
_SHARING: Final = re.compile(r"device\.allowMultipleAllocations (==|!=) true")
_ATTRIBUTE: Final = re.compile(r"device\.attributes\['([^']+)'\]\.(\w+) == '([^']+)'")
_PREFIX: Final = re.compile(r"device\.attributes\['([^']+)'\]\.(\w+)\.startsWith\('([^']+)'\)")


def accepts(expression: str, driver: str, device: dict[str, Any]) -> bool:
    """Return whether an expression, a conjunction of known forms, accepts a device."""
    return all(_accepts(part, driver, device) for part in expression.split(" && "))


def _accepts(expression: str, driver: str, device: dict[str, Any]) -> bool:
    if form := _DRIVER.fullmatch(expression):
        return driver == form[1]
    if form := _SHARING.fullmatch(expression):
        return bool(device.get("allowMultipleAllocations", False)) is (form[1] == "==")
    if form := _ATTRIBUTE.fullmatch(expression):
        return driver == form[1] and _attribute(device, form[2]) == form[3]
    form = _PREFIX.fullmatch(expression)
    assert form is not None, f"the oracle does not read {expression!r}"
    return driver == form[1] and _attribute(device, form[2]).startswith(form[3])


def _attribute(device: dict[str, Any], name: str) -> str:
    return str(device.get("attributes", {}).get(name, {}).get("string", ""))
