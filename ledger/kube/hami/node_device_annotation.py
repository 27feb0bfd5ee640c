"""Node device annotation: the cards of one vendor on a node, as text in both HAMi formats.

The current format is a JSON list of objects. It omits zero, false and empty fields, so a card
without `health` is not healthy. Until HAMi 2.7, and still for some vendors, colons separate cards,
and commas separate their fields: `uuid,slots,MiB,cores,type,numa,healthy`, with `,index,mode` in
later releases. Both formats are read for every vendor, because the nodes of a cluster may run
several releases.
"""

import re
from collections.abc import Iterable
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from ledger.core.model.cards import Card, Profile
from ledger.kube.api.quoting import shown
from ledger.kube.hami.int32 import INT32_MAX, INT32_MIN, int32_of

TEXT_MAX: Final = 262_144
"""Longest text that is read: the API server's limit for all annotations of an object."""
SLICES_MAX: Final = 64
"""Maximum number of slices of a MIG card."""
PROFILES_MAX: Final = 64
"""Maximum number of MIG profiles of one card, and of placements of one profile."""

_HAMI_CORE: Final = "hami-core"
"""The default mode of older releases: cards are shared through a library in each container."""
_FIELDS: Final = ("uuid", "slots", "memory", "cores", "type", "numa", "health", "index", "mode")
_WITHOUT_INDEX: Final = 7
_UUID: Final = re.compile(r"[!-~]{1,253}", re.ASCII)
_SEPARATORS: Final = frozenset(",:;")
_TRUTH: Final = {"1": True, "t": True, "true": True, "0": False, "f": False, "false": False}

Number = Annotated[int, Meta(ge=0, le=INT32_MAX)]
Signed = Annotated[int, Meta(ge=INT32_MIN, le=INT32_MAX)]
Slices = Annotated[int, Meta(ge=0, le=SLICES_MAX)]


class BadCards(ValueError):
    """A list of cards is invalid; the text names the card, the field and the cause."""


class _Place(msgspec.Struct, frozen=True, gc=False):
    start: Slices = 0
    size: Slices = 0


class _Size(msgspec.Struct, frozen=True, rename={"memory": "memoryMB", "slices": "sliceCount"}):
    """A profile. Without `placements`, Go writes null for them."""

    name: str = ""
    memory: Number = 0
    core: Number = 0
    slices: Slices = 0
    placements: Annotated[tuple[_Place, ...], Meta(max_length=PROFILES_MAX)] | None = None


class _Written(msgspec.Struct, frozen=True, omit_defaults=True, rename={"profiles": "migProfiles"}):
    """A card in JSON.

    HAMi's older field `migtemplate` has no positions of instances, so it is ignored like every
    unknown field.
    """

    id: str = ""
    index: Number = 0
    count: Number = 0
    devmem: Number = 0
    devcore: Number = 0
    type: str = ""
    numa: Signed = 0
    mode: str = ""
    health: bool = False
    profiles: Annotated[tuple[_Size, ...], Meta(max_length=PROFILES_MAX)] | None = None


_JSON: Final = msgspec.json.Decoder(list[_Written])


def read(text: str, vendor: str) -> list[Card]:
    """Return the cards in a text, in either format. Raises BadCards.

    A negative NUMA node, which drivers report if it is unknown, is read as 0.
    """
    if len(text) > TEXT_MAX:
        raise BadCards(f"it is longer than {TEXT_MAX} characters")
    devices = _of_json(text) if text.lstrip()[:1] in ("[", "{") else _of_colons(text)
    return [_card(number, device, vendor) for number, device in enumerate(devices)]


def announcement(cards: Iterable[Card]) -> str:
    """Return the JSON list of cards of one vendor."""
    return msgspec.json.encode([_written(card) for card in cards]).decode()


def colon_announcement(cards: Iterable[Card]) -> str:
    """Return cards of one vendor in the older format, which HAMi read until its release 2.7.

    The older format has no MIG instances.
    """
    return "".join(_colons(_written(card)) for card in cards)


def _colons(device: _Written) -> str:
    health = "true" if device.health else "false"
    fields = (
        device.id,
        device.count,
        device.devmem,
        device.devcore,
        device.type,
        device.numa,
        health,
        device.index,
    )
    return ",".join(map(str, (*fields, device.mode or _HAMI_CORE))) + ":"


def _of_json(text: str) -> list[_Written]:
    try:
        return _JSON.decode(text)
    except RecursionError as error:
        raise BadCards("its JSON is nested too deeply") from error
    except ValueError as error:
        raise BadCards(f"its JSON does not list cards: {error}") from error


def _of_colons(text: str) -> list[_Written]:
    if ":" not in text:
        raise BadCards(f"{shown(text)!r} is neither JSON nor cards that end with a colon")
    segments = [segment for segment in text.split(":") if segment.strip()]
    return [_segment(number, segment) for number, segment in enumerate(segments)]


def _segment(number: int, segment: str) -> _Written:
    fields = [field.strip() for field in segment.split(",")]
    if len(fields) == _WITHOUT_INDEX:
        fields += ["0", _HAMI_CORE]
    if len(fields) != len(_FIELDS):
        raise BadCards(
            f"card {number} has {len(fields)} fields, not {_WITHOUT_INDEX} or {len(_FIELDS)}:"
            f" {shown(segment)!r}"
        )
    given = dict(zip(_FIELDS, fields, strict=True))
    return _Written(
        id=given["uuid"],
        index=_number(number, given, "index"),
        count=_number(number, given, "slots"),
        devmem=_number(number, given, "memory"),
        devcore=_number(number, given, "cores"),
        type=given["type"],
        numa=_number(number, given, "numa", least=INT32_MIN),
        mode=given["mode"],
        health=_truth(number, given["health"]),
    )


def _number(card: int, fields: dict[str, str], name: str, least: int = 0) -> int:
    number = int32_of(fields[name], least)
    if number is None:
        text = shown(fields[name])
        raise BadCards(f"card {card}: {name} {text!r} is not a number from {least} to {INT32_MAX}")
    return number


def _truth(card: int, text: str) -> bool:
    healthy = _TRUTH.get(text.lower())
    if healthy is None:
        raise BadCards(f"card {card}: health {shown(text)!r} is neither true nor false")
    return healthy


def _card(number: int, device: _Written, vendor: str) -> Card:
    if _UUID.fullmatch(device.id) is None or not _SEPARATORS.isdisjoint(device.id):
        raise BadCards(
            f"card {number}: the uuid {shown(device.id)!r} is not 1 to 253 visible ASCII characters"
            " without a comma, colon or semicolon"
        )
    return Card(
        uuid=device.id,
        index=device.index,
        type=device.type,
        memory=device.devmem,
        cores=device.devcore,
        slots=device.count,
        vendor=vendor,
        numa=max(device.numa, 0),
        mode=device.mode,
        healthy=device.health,
        profiles=_profiles(number, device.profiles or ()),
    )


def _profiles(number: int, sizes: tuple[_Size, ...]) -> tuple[Profile, ...]:
    """Return the MIG profiles, sorted."""
    profiles = [_profile(number, size) for size in sizes]
    return tuple(
        sorted(profiles, key=lambda profile: (profile.memory, profile.slices, profile.name))
    )


def _profile(number: int, size: _Size) -> Profile:
    places = tuple(sorted((place.start, place.size) for place in size.placements or ()))
    if not size.name or any(not length or at + length > SLICES_MAX for at, length in places):
        raise BadCards(
            f"card {number}: the profile {shown(size.name)!r} has no name, or a placement that is"
            f" not 1 to {SLICES_MAX} slices within the first {SLICES_MAX}: {shown(str(places))}"
        )
    return Profile(size.name, size.memory, size.core, size.slices, places)


def _written(card: Card) -> _Written:
    return _Written(
        id=card.uuid,
        index=card.index,
        count=card.slots,
        devmem=card.memory,
        devcore=card.cores,
        type=card.type,
        numa=card.numa,
        mode=card.mode,
        health=card.healthy,
        profiles=tuple(
            _Size(profile.name, profile.memory, profile.cores, profile.slices, _places(profile))
            for profile in card.profiles
        )
        or None,
    )


def _places(profile: Profile) -> tuple[_Place, ...]:
    return tuple(_Place(start, size) for start, size in profile.placements)
