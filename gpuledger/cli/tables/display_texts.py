"""Display texts: amounts, ages and names as the default view of a table shows them.

Amounts have the unit of their resource, as Kubernetes writes quantities: `16000Mi` of card memory,
`60%` of a card's cores, `2` cards. A column never mixes Mi and Gi, so that its numbers compare.
Ages are those of kubectl. A name that is too long loses its middle, never its end.
"""

import functools
import time
from datetime import datetime
from typing import Final

from ledger.core.model.accounts import resource_of

ELLIPSIS: Final = "…"
NOTHING: Final = "-"
"""The cell of an empty value."""

_VENDOR: Final = "nvidia.com/"
_SECOND, _MINUTE, _HOUR = (1, "s"), (60, "m"), (3_600, "h")
_DAY, _YEAR = (86_400, "d"), (31_536_000, "y")
_STEPS: Final = (
    (120, _SECOND, None),
    (600, _MINUTE, _SECOND),
    (3 * 3_600, _MINUTE, None),
    (8 * 3_600, _HOUR, _MINUTE),
    (48 * 3_600, _HOUR, None),
    (8 * 86_400, _DAY, _HOUR),
    (2 * 31_536_000, _DAY, None),
    (8 * 31_536_000, _YEAR, _DAY),
    (float("inf"), _YEAR, None),
)
"""The end of each step in seconds, its unit, and its second unit, as in kubectl."""

_BINARY: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi")


def resource_text(key: str) -> str:
    """Return a quota key or resource without prefix and without nvidia's domain.

    `limits.nvidia.com/gpumem` is `gpumem`, `requests.v100.nvidia.com/gpu` is `v100.gpu`. Resources
    of other vendors keep their domain.
    """
    return resource_of(key).replace(_VENDOR, "", 1)


def quantity_text(key: str, amount: int) -> str:
    """Return an amount with the unit of its resource: MiB, percent of a card, bytes, millicores."""
    resource = resource_of(key)
    if "/" not in resource:
        return _native(resource, amount)
    memory, cores = _card_resources()
    if resource.endswith(memory):
        return f"{amount}Mi"
    return f"{amount}%" if resource.endswith(cores) else str(amount)


def amounts_text(amounts: dict[str, int]) -> str:
    """Return amounts as one word, `gpu=2,gpumem=16000Mi`."""
    words = (f"{resource_text(key)}={quantity_text(key, amounts[key])}" for key in amounts)
    return ",".join(words) or NOTHING


def age_text(moment: str, now: float | None = None) -> str:
    """Return the age of an RFC 3339 time as kubectl writes it, `-` for an empty text.

    `now` is in seconds of Unix time. A time after it has the age `0s`.
    """
    if not moment:
        return NOTHING
    seconds = int(
        (time.time() if now is None else now) - datetime.fromisoformat(moment).timestamp()
    )
    return duration_text(max(seconds, 0))


def duration_text(seconds: int) -> str:
    """Return a duration with one or two units, such as `90s`, `5m30s`, `7h20m` or `3d`."""
    (length, unit), smaller = next(step[1:] for step in _STEPS if seconds < step[0])
    whole, rest = divmod(seconds, length)
    if smaller is None or rest < smaller[0]:
        return f"{whole}{unit}"
    return f"{whole}{unit}{rest // smaller[0]}{smaller[1]}"


def shortened(text: str, width: int) -> str:
    """Return a text of at most `width` columns; a longer one loses its middle."""
    if columns_of(text) <= width:
        return text
    kept = max(width - 1, 0)
    end = _start(text[::-1], kept // 2)[::-1]
    return f"{_start(text, kept - kept // 2)}{ELLIPSIS}{end}"


def columns_of(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def harmless(cell: str) -> str:
    """Escape unprintable characters, such as control characters and marks of direction.

    Otherwise a name could imitate another one, forge lines or control a terminal.
    """
    if cell.isprintable():
        return cell
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in cell
    )


def _native(resource: str, amount: int) -> str:
    """Return an amount of Kubernetes' own resources: CPU in millicores, memory in bytes."""
    if resource.endswith("cpu"):
        return f"{amount}m"
    if not resource.endswith("memory"):
        return str(amount)
    unit = 0
    while amount and amount % 1024 == 0 and unit + 1 < len(_BINARY):
        amount, unit = amount // 1024, unit + 1
    return f"{amount}{_BINARY[unit]}"


def _start(text: str, width: int) -> str:
    """Return the longest beginning of at most `width` columns."""
    if text.isascii():
        return text[:width]
    end = 0
    while end < len(text) and columns_of(text[: end + 1]) <= width:
        end += 1
    return text[:end]


@functools.cache
def _card_resources() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the resources of card memory in MiB, and those of cores in percent."""
    from ledger.kube.vendors.vendors import BUILT_IN, WHOLE

    memory = tuple(vendor.memory for vendor in BUILT_IN if vendor.memory)
    cores = (vendor.cores for vendor in BUILT_IN if vendor.whole_cores == WHOLE)
    return memory, tuple(name for name in cores if name)
