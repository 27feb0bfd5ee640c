"""Display names: the names of accounts, resources and amounts in the sentences of a denial.

Every amount is either a total (needed after the change, used now, allowed by an account) or named
as an increase ("released"). One comparison never contains both.
"""

import re
from typing import Final, NamedTuple

from ledger.core.model.accounts import AccountKind, kind, parts, resource_of
from ledger.core.model.cards import CORES, MEMORY, SLOTS

_SUBJECT: Final = re.compile(r"(.*?) (?:has|is not allowed|does not allow) ")
_VENDOR: Final = "nvidia.com/"
_OF_A_CARD: Final = "% of a card's cores"
_TIMES: Final = "\N{MULTIPLICATION SIGN}"


class Measure(NamedTuple):
    """The name of a resource: its noun, its unit in singular and plural, and if it is a count."""

    noun: str
    singular: str = ""
    many: str = ""
    plural: bool = False

    def amount(self, amount: int) -> str:
        """Return an amount with its unit."""
        unit = self.singular if amount == 1 else self.many
        return f"{amount} {unit}" if unit else f"{amount}"

    @property
    def is_count(self) -> bool:
        """Return whether it counts cards."""
        return self.singular.startswith("GPU")

    @property
    def is_of_cards(self) -> bool:
        """Return whether it is a sum over several cards."""
        return self.noun.startswith("GPU ")

    def lacking(self, free: int) -> str:
        """Return the phrase for the free amount of an account when `free` is not enough."""
        if free <= 0:
            return f"no {self.noun} left"
        return f"too {'few' if self.plural else 'little'} {self.noun} left"

    def that_much(self) -> str:
        """Return the phrase for an amount that an account would never allow."""
        return f"that {'many' if self.plural else 'much'} {self.noun}"


_OF_VENDOR: Final = {
    "gpu": Measure("GPUs", "GPU", "GPUs", plural=True),
    "gpumem": Measure("GPU memory", "MiB", "MiB"),
    "gpucores": Measure("GPU cores", _OF_A_CARD, _OF_A_CARD, plural=True),
}
_OF_CARDS: Final = {
    MEMORY: Measure("memory", "MiB", "MiB"),
    CORES: Measure("cores", "% of its cores", "% of its cores", plural=True),
    SLOTS: Measure("places for containers", "place", "places", plural=True),
}


def measure_of(account: str, key: str) -> Measure:
    """Return the measure of a line's resource."""
    return _OF_CARDS[key] if kind(account) is AccountKind.CARD else measure(resource_of(key))


def measure(resource: str) -> Measure:
    """Return the measure of a resource of objects; unknown resources keep their own name."""
    of_type, vendor, name = resource.partition(_VENDOR)
    known = _OF_VENDOR.get(name) if vendor else None
    if known is not None and not of_type:
        return known
    if known is not None and of_type.endswith("."):
        suffix = f" of type {of_type[:-1]}"
        cores = f"% of the cores of a card{suffix}"
        units = (known.singular, known.many)
        single, many = (cores if unit == _OF_A_CARD else f"{unit}{suffix}" for unit in units)
        return Measure(known.noun + suffix, single, many, known.plural)
    if resource.endswith("cpu") and "/" not in resource:
        return Measure(f"CPU ({resource})", "millicore", "millicores")
    if resource.endswith("memory") and "/" not in resource:
        return Measure(f"memory ({resource})", "byte", "bytes")
    return Measure(resource)


def object_name(key: str, object_kind: str = "") -> str:
    """Name an object by its storage key: `Deployment web`, or the key where no kind is known.

    A resource claim has its name in words, because `claim` alone has another meaning.
    """
    resource, _, name = key.partition("/")
    if resource == "resourceclaims.resource.k8s.io":
        object_kind = "resource claim"
    elif not object_kind and resource == "pods":
        object_kind = "Pod"
    return f"{object_kind} {name}" if object_kind else key


def display(account: str) -> str:
    """Return the name of an account in the terms of users."""
    _, place, name = parts(account)
    if kind(account) is AccountKind.QUOTA:
        return f'quota "{name}"'
    if kind(account) is AccountKind.UNIVERSE:
        return f'shared quota "{name}" (UniverseResourceQuota)'
    return f"card {name} of node {place}"


def subject_of(message: str) -> str:
    """Return the subject of the sentence about a short line."""
    match = _SUBJECT.match(message)
    return match[1] if match else ""


def also(message: str, first: str) -> str:
    """Return the sentence about a line as it follows the sentence about the first line."""
    subject = subject_of(first)
    if message.startswith(f"{subject} "):
        rest = message[len(subject) :]
        return f"It is also{rest[3:]}" if rest.startswith(" is ") else f"It also{rest}"
    return f"Also, {message}"


def times(number: int, each: int, total: int, of: str = "pods") -> str:
    """Return the product of which a total is made, as text; empty when it is of one pod."""
    return f" ({number} {of} {_TIMES} {each})" if number > 1 and number * each == total else ""


def listed(parts: list[str]) -> str:
    """Join parts as English does."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def are(amount: int) -> str:
    """Return the verb for an amount."""
    return "is" if amount == 1 else "are"
