"""Release names: the name with which all objects of an installation begin.

The rule is that of the chart and helm's convention: the name of the release, with `-gpuledger`
behind it unless the name contains `gpuledger`. The chart's value `fullnameOverride` replaces it.
"""

import re
from typing import Final

from gpuledger.cli.exit_codes import CommandError, Exit
from ledger.runtime.settings.setting_patterns import NAME_PATTERN

PRODUCT: Final = "gpuledger"

FULL_NAME_MAX: Final = 38
"""Characters of the name; the chart cuts longer ones, because names of objects end with more."""

_RELEASE_MAX: Final = FULL_NAME_MAX - len(f"-{PRODUCT}")


def full_name(release: str, override: str = "") -> str:
    """Return the name of a release's objects, or the override.

    Raises CommandError for an invalid name.
    """
    _check("--full-name" if override else "--release", override or release)
    if override or PRODUCT in release:
        return (override or release)[:FULL_NAME_MAX].rstrip("-")
    return f"{release[:_RELEASE_MAX].rstrip('-')}-{PRODUCT}"


def _check(option: str, name: str) -> None:
    if not re.fullmatch(NAME_PATTERN, name):
        raise CommandError(
            Exit.USAGE, f"{option} {name!r} is not the name of a release: use a-z, 0-9, -"
        )
