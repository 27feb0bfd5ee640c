"""GPU type annotation: the card types that a pod names in it.

`pod_demand.py` charges such a pod on the keys of each named type as well: `nvidia.com/gpumem` of a
pod that needs a V100 counts as `v100.nvidia.com/gpumem` too.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

ANNOTATIONS: Final = ("nvidia.com/use-gputype", "nvidia.com/gpu-type")
"""Default annotations in which pods name their card type."""

NAMED_MAX: Final = 16
"""Maximum number of types that one pod may name."""

_FORM: Final = re.compile(r"(?P<name>[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)(=(?P<memory>[0-9]{1,8}))?")
_MEMORY_MAX: Final = 2**24


class CardType(msgspec.Struct, frozen=True, gc=False):
    """A known type: its name in quota keys, and the MiB of such a card, 0 if unknown."""

    name: str
    memory: int = 0


class NamedTypes(msgspec.Struct, frozen=True):
    """The types that a pod names; `unknown` is the first unknown type, in `annotation`.

    A pod that names several types may run on any of them, so it is charged on each. `memory` is
    the MiB of the largest, 0 if the size of any type is unknown.
    """

    types: tuple[CardType, ...] = ()
    unknown: str = ""
    annotation: str = ""

    @property
    def memory(self) -> int:
        """Return the MiB of the largest card that the pod may run on, 0 if unknown."""
        sizes = [card_type.memory for card_type in self.types]
        return max(sizes) if sizes and all(sizes) else 0


NONE: Final = NamedTypes()


def parse_types(texts: Sequence[str]) -> tuple[CardType, ...]:
    """Return the types in texts of the form `name` or `name=MiB`. Raises ValueError."""
    types: dict[str, CardType] = {}
    for text in texts:
        form = _FORM.fullmatch(text.lower())
        memory = int((form and form["memory"]) or 0)
        if form is None or memory > _MEMORY_MAX:
            raise ValueError(
                f"{text!r} is not a type of card: write a name of letters, digits and -, with the"
                " MiB of a card if you know them, for example v100=32768"
            )
        if form["name"] in types:
            raise ValueError(f"the type {form['name']} is given twice")
        types[form["name"]] = CardType(form["name"], memory)
    return tuple(types.values())


def types_named(
    annotations: Mapping[str, str] | None,
    keys: Sequence[str],
    known: Mapping[str, CardType],
) -> NamedTypes:
    """Return the types in the annotations `keys`: lists with commas, regardless of case."""
    types: dict[str, CardType] = {}
    for key in keys:
        text = annotations.get(key) if annotations else None
        if not text:
            continue
        for item in text.split(",", NAMED_MAX):
            name = item.strip().lower()
            if name and (name not in known or len(types) == NAMED_MAX):
                return NamedTypes((), item.strip(), key)
            if name:
                types[name] = known[name]
    return NamedTypes(tuple(types.values())) if types else NONE
