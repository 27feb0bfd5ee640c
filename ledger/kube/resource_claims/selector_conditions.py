"""Selector conditions: what the CEL selectors of a class or request certainly demand of a device.

Only necessary conditions are read, so a condition never excludes a device that the API server's
CEL accepts.
"""

import re
from collections.abc import Iterable
from typing import Final

import msgspec

from ledger.kube.resource_claims.dra_objects import ClaimDeviceSelector

_DRIVER: Final = re.compile(r"""device\.driver\s*==\s*(?:'([-.a-z0-9]+)'|"([-.a-z0-9]+)")""")


class DeviceCondition(msgspec.Struct, frozen=True, gc=False):
    """A necessary condition of devices.

    `driver` is empty and `shared` is None where the selectors leave it open. With `exact`, every
    device that meets the condition is selected.
    """

    driver: str = ""
    shared: bool | None = None
    exact: bool = False


def condition_of(selectors: Iterable[ClaimDeviceSelector] | None) -> DeviceCondition:
    """Return a condition that holds for every device which all selectors accept."""
    for selector in selectors or ():
        text = selector.cel.expression if selector.cel is not None else ""
        for conjunct in text.split("&&"):
            form = _DRIVER.fullmatch(conjunct.strip())
            if form is not None:
                return DeviceCondition(form[1] or form[2])
    return DeviceCondition()
