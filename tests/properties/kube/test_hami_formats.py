"""Properties of HAMi's formats: what is written is read back, and no text breaks a reader."""

from contextlib import suppress
from datetime import UTC, datetime

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from support.builders.colon_cards import announcement_in_colons

from ledger.core.model.cards import Card, Part, Phase, Profile, Share
from ledger.kube.api.objects import Container, Pod, PodSpec
from ledger.kube.hami import annotation_keys, node_lock_annotation
from ledger.kube.hami.binding_annotations import annotations_of
from ledger.kube.hami.node_announcement import read_announcement
from ledger.kube.hami.node_device_annotation import announcement
from ledger.kube.hami.placement_annotation_reader import parts_of
from ledger.kube.hami.plugin_handshake import handshake_alive
from ledger.kube.hami.pod_device_annotation import BadDeviceList

INT32 = st.integers(0, 2**31 - 1)
UUIDS = st.integers(0, 99).map("GPU-{:08}-aaaa".format) | st.text("aZ0-._", min_size=1, max_size=9)
WORDS = st.sampled_from(("", "NVIDIA A10", "NVIDIA-Tesla V100", "hami-core", "mig"))
PLACES = st.lists(st.tuples(st.integers(0, 63), st.just(1)), max_size=4, unique=True)
PROFILES = st.lists(
    st.builds(
        Profile,
        name=st.sampled_from(("1g", "2g", "7g")),
        memory=INT32,
        cores=INT32,
        slices=st.integers(0, 64),
        placements=PLACES.map(sorted).map(tuple),
    ),
    max_size=3,
    unique_by=lambda profile: profile.name,
).map(
    lambda profiles: tuple(
        sorted(profiles, key=lambda profile: (profile.memory, profile.slices, profile.name))
    )
)
CARDS = st.lists(
    st.builds(
        Card,
        uuid=UUIDS,
        index=INT32,
        type=WORDS,
        memory=INT32,
        cores=INT32,
        slots=INT32,
        vendor=st.sampled_from(sorted(annotation_keys.VENDOR_ANNOTATIONS)),
        numa=INT32,
        mode=WORDS,
        healthy=st.booleans(),
        cordoned=st.booleans(),
        profiles=PROFILES,
    ),
    max_size=6,
    unique_by=lambda card: card.uuid,
)


@given(CARDS, st.randoms())
def test_cards_are_read_as_announced_in_any_order(cards, random) -> None:
    random.shuffle(cards)
    annotations = {annotation_keys.CORDON: ", ".join(card.uuid for card in cards if card.cordoned)}
    for vendor in {card.vendor for card in cards}:
        theirs = [card for card in cards if card.vendor == vendor]
        annotations[annotation_keys.VENDOR_ANNOTATIONS[vendor].register] = announcement(theirs)
    announced = read_announcement(annotations)
    assert not announced.problem
    assert announced.cards == tuple(
        sorted(cards, key=lambda card: (card.vendor, card.index, card.uuid))
    )


@given(CARDS)
def test_the_older_form_carries_all_but_profiles(cards) -> None:
    plain = [
        msgspec.structs.replace(card, vendor="nvidia", profiles=(), cordoned=False)
        for card in cards
    ]
    text = announcement_in_colons(plain)
    announced = read_announcement(
        {annotation_keys.VENDOR_ANNOTATIONS["nvidia"].register: text} if plain else {}
    )
    assert not announced.problem
    assert announced.cards == tuple(sorted(plain, key=lambda card: (card.index, card.uuid)))


@st.composite
def placed(draw) -> tuple[tuple[Part, ...], list[Card]]:
    """Return a pod's shares of some cards, each container's shares in order of the vendor."""
    cards = [
        msgspec.structs.replace(card, vendor=draw(st.sampled_from(("nvidia", "amd", "hygon"))))
        for card in draw(CARDS)
    ]
    by_vendor = list(annotation_keys.VENDOR_ANNOTATIONS).index
    phases = sorted(draw(st.lists(st.booleans(), min_size=1, max_size=5)))
    parts = []
    for number, app in enumerate(phases):
        phase = Phase.APP if app else draw(st.sampled_from((Phase.INIT, Phase.SIDECAR)))
        theirs = draw(st.lists(st.sampled_from(cards), max_size=3)) if cards else []
        theirs.sort(key=lambda card: by_vendor(card.vendor))
        shares = tuple(draw(shares_of(card)) for card in theirs)
        parts.append(Part(f"c{number}", phase, shares))
    return tuple(parts), cards


@st.composite
def shares_of(draw, card: Card) -> Share:
    if card.vendor == "nvidia" and draw(st.booleans()):
        start, size = draw(st.integers(0, 63)), draw(st.integers(1, 64))
        return Share(card.uuid, draw(INT32), draw(INT32), False, "1g.10gb", start, size)
    cores = draw(st.integers(0, 150))
    return Share(card.uuid, draw(INT32), cores, exclusive=cores >= 100)


def pod_of(parts: tuple[Part, ...]) -> Pod:
    init = [
        Container(part.container, "Always" if part.phase == Phase.SIDECAR else None)
        for part in parts
        if part.phase != Phase.APP
    ]
    apps = [Container(part.container) for part in parts if part.phase == Phase.APP]
    return Pod(spec=PodSpec(containers=apps, init_containers=init))


@given(placed())
def test_a_pods_parts_are_read_as_they_are_written(parts_and_cards) -> None:
    parts, cards = parts_and_cards
    annotations = annotations_of(parts, "n1", cards, 0)
    expected = parts if any(part.shares for part in parts) else None
    assert parts_of(annotations, pod_of(parts)) == expected


@given(placed(), st.integers(1, 3))
def test_slots_that_a_node_writes_more_change_nothing(parts_and_cards, times) -> None:
    parts, cards = parts_and_cards
    annotations = annotations_of(parts, "n1", cards, 0)
    longer = {
        key: text + ";" * times if key.endswith("-allocated") else text
        for key, text in annotations.items()
    }
    assert parts_of(longer, pod_of(parts)) == parts_of(annotations, pod_of(parts))


JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ("id", "uuid", "score", "devmem", "migProfiles", "placements", "containerIndex")
            ),
            inner,
            max_size=3,
        )
    ),
).map(lambda value: msgspec.json.encode(value).decode())
FIELDS = st.lists(st.sampled_from(("GPU-a", "1", "-1", "true", "", "x", "9" * 12)), max_size=10)
LISTS = st.lists(st.tuples(FIELDS.map(",".join), st.sampled_from((":", ";", ":;")))).map(
    lambda pairs: "".join(text + end for text, end in pairs)
)
TEXTS = st.text(max_size=60) | JSONS | LISTS


@given(TEXTS, TEXTS, TEXTS)
def test_any_text_of_a_node_is_cards_or_a_problem(text, scores, cordon) -> None:
    for words in annotation_keys.VENDOR_ANNOTATIONS.values():
        announced = read_announcement(
            {
                words.register: text,
                annotation_keys.PAIR_SCORES: scores,
                annotation_keys.CORDON: cordon,
            }
        )
        assert not (announced.cards and announced.problem)
        assert all(0 <= limit < 2**31 for card in announced.cards for limit in card.limits())


@given(TEXTS, TEXTS)
def test_any_text_of_a_pod_is_parts_or_the_named_error(text, instances) -> None:
    spec = PodSpec(containers=[Container("one"), Container("two")])
    annotations = {
        annotation_keys.VENDOR_ANNOTATIONS["nvidia"].allocated: text,
        annotation_keys.INSTANCES: instances,
    }
    with suppress(BadDeviceList):
        parts = parts_of(annotations, Pod(spec=spec))
        assert parts is None or len(parts) == 2


@given(TEXTS | st.datetimes().map(lambda time: f"{time.isoformat()}Z,a,b"))
def test_any_lock_and_any_handshake_is_parsed_or_ignored(text) -> None:
    now = datetime(2026, 3, 1, tzinfo=UTC)
    lock = node_lock_annotation.read(text)
    if lock is not None:
        assert lock.expired(now) in (True, False)
    assert handshake_alive(f"Requesting_{text}", now, 0) in (True, False)
