"""Wording: what a line without room is called in a denial, with units and in plain sentences.

Every amount is either a total (what the object needs after the change, what is used now, what an
account allows) or named as an increase ("released"); the two never stand in one comparison.
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
    """How a resource is called: its noun, its unit for one and for many, and whether it counts."""

    noun: str
    one: str = ""
    many: str = ""
    plural: bool = False

    def amount(self, amount: int) -> str:
        """Return an amount with its unit."""
        unit = self.one if amount == 1 else self.many
        return f"{amount} {unit}" if unit else f"{amount}"

    @property
    def is_count(self) -> bool:
        """Return whether it counts cards."""
        return self.one.startswith("GPU")

    @property
    def is_of_cards(self) -> bool:
        """Return whether it adds up what is asked for of several cards."""
        return self.noun.startswith("GPU ")

    def lacking(self, free: int) -> str:
        """Return what an account has left of it when `free` is not enough."""
        if free <= 0:
            return f"no {self.noun} left"
        return f"too {'few' if self.plural else 'little'} {self.noun} left"

    def that_much(self) -> str:
        """Return what an account would never allow."""
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
    """Return how the resource of a line is called."""
    return _OF_CARDS[key] if kind(account) is AccountKind.CARD else measure(resource_of(key))


def measure(resource: str) -> Measure:
    """Return how a resource of objects is called; by its own name when it has no other."""
    of_type, found, name = resource.partition(_VENDOR)
    known = _OF_VENDOR.get(name) if found else None
    if known is not None and not of_type:
        return known
    if known is not None and of_type.endswith("."):
        suffix = f" of type {of_type[:-1]}"
        cores = f"% of the cores of a card{suffix}"
        one, many = (
            cores if unit == _OF_A_CARD else f"{unit}{suffix}" for unit in (known.one, known.many)
        )
        return Measure(known.noun + suffix, one, many, known.plural)
    if resource.endswith("cpu") and "/" not in resource:
        return Measure(f"CPU ({resource})", "millicore", "millicores")
    if resource.endswith("memory") and "/" not in resource:
        return Measure(f"memory ({resource})", "byte", "bytes")
    return Measure(resource)


def object_name(key: str, object_kind: str = "") -> str:
    """Name an object by its storage key: `Deployment web`, or the key where no kind is known."""
    resource, _, name = key.partition("/")
    if not object_kind and resource == "pods":
        object_kind = "Pod"
    return f"{object_kind} {name}" if object_kind else key


def display(account: str) -> str:
    """Name an account as a user knows it."""
    _, place, name = parts(account)
    if kind(account) is AccountKind.QUOTA:
        return f'quota "{name}"'
    if kind(account) is AccountKind.UNIVERSE:
        return f'shared quota "{name}" (UniverseResourceQuota)'
    return f"card {name} of node {place}"


def subject_of(message: str) -> str:
    """Return of whom the sentence about a line says that there is too little."""
    found = _SUBJECT.match(message)
    return found[1] if found else ""


def also(message: str, first: str) -> str:
    """Return the sentence about a line as it stands after that about the first one."""
    subject = subject_of(first)
    if message.startswith(f"{subject} "):
        rest = message[len(subject) :]
        return f"It is also{rest[3:]}" if rest.startswith(" is ") else f"It also{rest}"
    return f"Also, {message}"


def times(number: int, each: int, total: int, of: str = "pods") -> str:
    """Return how a total comes about from several like pods, empty where it does not."""
    return f" ({number} {of} {_TIMES} {each})" if number > 1 and number * each == total else ""


def listed(parts: list[str]) -> str:
    """Join parts as English does."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def are(amount: int) -> str:
    """Return the verb for an amount."""
    return "is" if amount == 1 else "are"
