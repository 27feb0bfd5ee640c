"""Interning: equal values in the state share one object, because the pods of a fleet repeat a few
texts and demands.

Only values that are never changed are shared. A shared value is equal to the given one, also in the
order of its resources, so decisions and stored bytes are the same with and without it. The caches
are bounded. A value that was dropped from a cache is shared again from its next use on.
"""

from functools import lru_cache
from typing import Final

from ledger.core.model.amounts import Amounts
from ledger.core.model.traits import Traits

TEXTS_MAX: Final = 16_384
"""Cached texts: owners, actors, roots and keys of quotas, and names of resources."""

TEXT_CHARACTERS_MAX: Final = 512
"""Longest cached text and longest cached name of a resource."""

NUMBERS_MAX: Final = 1_024
"""Cached limits of lines."""

AMOUNTS_MAX: Final = 4_096
"""Cached demands."""

RESOURCES_MAX: Final = 16
"""Most resources of a cached demand."""

SOURCES_MAX: Final = 8_192
"""Cached sources of holds."""

TRAITS_MAX: Final = 4_096
"""Cached traits."""

TRAITS_CHARACTERS_MAX: Final = 4_096
"""Longest cached traits, all texts together."""

_NOTHING: Final[Amounts] = {}
_amounts: Final[dict[tuple[object, ...], Amounts]] = {}

Source = tuple[str, str, str, Traits]
"""The owner, actor, root and traits of a hold."""

_sources: Final[dict[Source, Source]] = {}


@lru_cache(maxsize=TEXTS_MAX)
def _text(text: str) -> str:
    return text


@lru_cache(maxsize=TRAITS_MAX)
def _traits(traits: Traits) -> Traits:
    return tuple(map(interned_text, traits))


def interned_text(text: str) -> str:
    """Return the shared object of an equal text."""
    return _text(text) if len(text) <= TEXT_CHARACTERS_MAX else text


@lru_cache(maxsize=NUMBERS_MAX)
def interned_number(number: int) -> int:
    """Return the shared object of an equal number."""
    return number


def interned_traits(traits: Traits) -> Traits:
    """Return the shared object of equal traits."""
    if not traits or sum(map(len, traits)) > TRAITS_CHARACTERS_MAX:
        return traits
    return _traits(traits)


def interned_amounts(amounts: Amounts) -> Amounts:
    """Return the shared object of amounts that are equal and in the same order."""
    key = (*amounts, *amounts.values())
    shared = _amounts.get(key)
    return _remember(key, amounts) if shared is None else shared


def interned_source(owner: str, actor: str, root: str, traits: Traits) -> Source:
    """Return a hold's owner, actor, root and traits as shared objects.

    One look-up takes the place of four, because the holds of a controller repeat all of them.
    """
    source = (owner, actor, root, traits)
    return _sources.get(source) or _remember_source(source)


def _remember_source(source: Source) -> Source:
    """Share the parts of a source, and the source if all are short. A full cache begins again."""
    owner, actor, root, traits = source
    shared = (
        interned_text(owner),
        interned_text(actor),
        interned_text(root),
        interned_traits(traits),
    )
    characters = len(owner) + len(actor) + len(root) + sum(map(len, traits))
    if characters <= TEXT_CHARACTERS_MAX:
        if len(_sources) >= SOURCES_MAX:
            _sources.clear()
        _sources[shared] = shared
    return shared


def _remember(key: tuple[object, ...], amounts: Amounts) -> Amounts:
    """Share a copy of amounts from now on, if they are short. A full cache begins again.

    A copy, because the search for a remedy changes amounts between two trials of them.
    """
    if not amounts:
        return _NOTHING
    if len(amounts) > RESOURCES_MAX or max(map(len, amounts)) > TEXT_CHARACTERS_MAX:
        return amounts
    if len(_amounts) >= AMOUNTS_MAX:
        _amounts.clear()
    shared = {interned_text(resource): amount for resource, amount in amounts.items()}
    _amounts[key] = shared
    return shared
