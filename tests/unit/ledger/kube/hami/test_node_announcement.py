"""Node announcements: both formats of the list, several vendors, and invalid lists."""

import json
from typing import Any

import pytest

from ledger.core.decide.cards.card_checks import SHARES_MAX
from ledger.core.model.cards import HAMI, OWN, Card, Profile
from ledger.kube.hami import annotation_keys
from ledger.kube.hami.node_announcement import NodeAnnouncement, read_announcement
from ledger.kube.hami.node_device_annotation import TEXT_MAX, announcement
from ledger.kube.vendors.vendors import BUILT_IN

NVIDIA = annotation_keys.VENDOR_ANNOTATIONS["nvidia"].register
AMD = annotation_keys.VENDOR_ANNOTATIONS["amd"].register
HYGON = annotation_keys.VENDOR_ANNOTATIONS["hygon"].register

A = Card("GPU-a", 0, "NVIDIA A10", 24_576, 100, 10, mode="hami-core")
B = Card("GPU-b", 1, "NVIDIA A10", 24_576, 100, 10, numa=1, mode="hami-core")


def listed(**fields: Any) -> dict[str, Any]:
    """Return one card as JSON has it; by default a card that can be used."""
    return {"id": "GPU-a", "count": 10, "devmem": 100, "devcore": 100, "health": True, **fields}


def read(*cards: dict[str, Any], **others: str) -> NodeAnnouncement:
    return read_announcement({NVIDIA: json.dumps(cards), **others})


def read_text(text: str) -> NodeAnnouncement:
    return read_announcement({NVIDIA: text})


def test_cards_are_read_from_json_with_all_fields() -> None:
    text = (
        '[{"id":"GPU-a","count":10,"devmem":24576,"devcore":100,"type":"NVIDIA A10",'
        '"mode":"hami-core","health":true},'
        '{"id":"GPU-b","index":1,"count":10,"devmem":24576,"devcore":100,"type":"NVIDIA A10",'
        '"numa":1,"mode":"hami-core","health":true}]'
    )
    assert read_text(text) == NodeAnnouncement((A, B), HAMI, ("nvidia",))
    assert announcement((A, B)) == text


def test_what_json_leaves_out_is_zero_and_not_healthy() -> None:
    assert read({"id": "GPU-a"}).cards == (Card("GPU-a", 0, "", 0, 0, 0, healthy=False),)
    assert announcement([Card("GPU-a", 0, "", 0, 0, 0, healthy=False)]) == '[{"id":"GPU-a"}]'


def test_unknown_fields_are_skipped() -> None:
    extra = {"devicevendor": "AMD", "custominfo": {"deep": [1]}, "migtemplate": [[{"name": "1g"}]]}
    assert read(listed(**extra)).cards == read(listed()).cards
    assert read(listed(**extra)).cards[0].vendor == "nvidia"


def test_a_profile_that_may_lie_nowhere_is_what_go_writes_of_it() -> None:
    text = (
        '[{"id":"GPU-a","mode":"mig","migProfiles":[{"name":"1g.5gb","memoryMB":4864,"core":14,'
        '"sliceCount":1,"placements":null}]},{"id":"GPU-b","index":1,"migProfiles":null}]'
    )
    cut, whole = read_announcement({"hami.io/node-nvidia-register": text}).cards
    assert cut.profiles == (Profile("1g.5gb", 4864, 14, 1, ()),)
    assert whole.profiles == ()


@pytest.mark.parametrize(
    ("text", "cards"),
    [
        (
            "GPU-a,10,24576,100,NVIDIA A10,0,true,0,hami-core:"
            "GPU-b,10,24576,100,NVIDIA A10,1,true,1,hami-core:",
            (A, B),
        ),
        ("GPU-a,10,24576,100,NVIDIA A10,0,true:", (A,)),
        ("::GPU-a, 10,24576,100,NVIDIA A10,0,TRUE: :", (A,)),
        (
            "GPU-c,4,8000,50,NVIDIA T4,-1,false,3,mig:",
            (Card("GPU-c", 3, "NVIDIA T4", 8000, 50, 4, mode="mig", healthy=False),),
        ),
    ],
)
def test_cards_are_read_from_the_older_form(text: str, cards: tuple[Card, ...]) -> None:
    assert read_text(text) == NodeAnnouncement(cards, HAMI, ("nvidia",))


def test_the_order_in_which_a_node_lists_its_cards_changes_nothing() -> None:
    small = {"name": "1g", "memoryMB": 10, "core": 14, "sliceCount": 1}
    large = {"name": "2g", "memoryMB": 20, "core": 28, "sliceCount": 2}
    places = [{"start": 2, "size": 1}, {"start": 0, "size": 1}]
    first, other = listed(index=1), listed(id="GPU-b", index=0)
    original = read({**first, "migProfiles": [{**small, "placements": places}, large]}, other)
    two = read(
        other, {**first, "migProfiles": [large, {**small, "placements": [*reversed(places)]}]}
    )
    assert original == two
    assert [card.uuid for card in original.cards] == ["GPU-b", "GPU-a"]
    assert original.cards[1].profiles == (
        Profile("1g", 10, 14, 1, ((0, 1), (2, 1))),
        Profile("2g", 20, 28, 2, ()),
    )


def test_announcement_has_the_vendor_only_when_its_list_exists() -> None:
    assert read_text("[]") == NodeAnnouncement((), HAMI, ("nvidia",))
    assert read_announcement({}) == NodeAnnouncement()


def test_cards_have_their_vendor_when_a_node_has_several() -> None:
    announced = read_announcement(
        {
            NVIDIA: json.dumps([listed()]),
            AMD: json.dumps([listed(id="amd-1", type="MI300X")]),
            HYGON: "DCU-1,4,100,100,Z100,0,true:",
            "hami.io/node-register-Ascend910B4-1": json.dumps([listed(id="npu-1")]),
        }
    )
    assert not announced.problem
    assert {card.vendor: card.uuid for card in announced.cards} == {
        "nvidia": "GPU-a",
        "amd": "amd-1",
        "hygon": "DCU-1",
        "ascend-910b4-1": "npu-1",
    }
    assert announced.vendors == ("nvidia", "amd", "ascend-910b4-1", "hygon")


def test_every_maker_whose_cards_have_words_is_known_as_a_vendor() -> None:
    assert set(annotation_keys.VENDOR_ANNOTATIONS) <= {vendor.name for vendor in BUILT_IN}
    assert len({words.register for words in annotation_keys.VENDOR_ANNOTATIONS.values()}) == len(
        annotation_keys.VENDOR_ANNOTATIONS
    )
    assert len({words.allocated for words in annotation_keys.VENDOR_ANNOTATIONS.values()}) == len(
        annotation_keys.VENDOR_ANNOTATIONS
    )


def test_cards_are_cordoned_by_uuid_when_blanks_and_commas_are_extra() -> None:
    announced = read(
        listed(), listed(id="GPU-b"), **{annotation_keys.CORDON: " GPU-b ,, GPU-gone,"}
    )
    assert [(card.uuid, card.cordoned) for card in announced.cards] == [
        ("GPU-a", False),
        ("GPU-b", True),
    ]


def test_keeper_comes_from_the_setting_when_the_node_names_none() -> None:
    assert read(listed()).keeper == HAMI
    assert read_announcement({NVIDIA: "[]"}, keeper=OWN).keeper == OWN
    assert read_announcement({annotation_keys.KEEPER: "gpuledger"}).keeper == OWN
    assert read_announcement({annotation_keys.KEEPER: "hami"}, keeper=OWN).keeper == HAMI
    assert (
        "'me' is not one of hami, gpuledger"
        in read_announcement({annotation_keys.KEEPER: "me"}).problem
    )


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("", "'' is neither JSON nor cards that end with a colon"),
        ("GPU-a,10,1,1,T,0,true", "neither JSON nor cards"),
        ("GPU-a,10,1,1,T,0,true,0:", "card 0 has 8 fields, not 7 or 9"),
        ("GPU-a:", "card 0 has 1 fields"),
        ("GPU-a,x,1,1,T,0,true:", "card 0: slots 'x' is not a number"),
        ("GPU-a,1,1_0,1,T,0,true:", "card 0: memory '1_0' is not a number"),
        ("GPU-a,1,1,-1,T,0,true:", "card 0: cores '-1' is not a number"),
        ("GPU-a,1,2147483648,1,T,0,true:", "card 0: memory '2147483648' is not a number"),
        ("GPU-a,1,1,1,T,x,true:", "card 0: numa 'x' is not a number"),
        ("GPU-a,1,1,1,T,0,true,-1,mig:", "card 0: index '-1' is not a number"),
        ("GPU-a,1,1,1,T,0,yes:", "card 0: health 'yes' is neither true nor false"),
        (",1,1,1,T,0,true:", "card 0: the uuid '' is not"),
        ("{}", "Expected `array`, got `object`"),
        ("[", "its JSON does not list cards"),
        ("[1]", "got `int` - at `$[0]`"),
        ('[{"id":"GPU-a"},{"id":"GPU-b","devmem":"1"}]', "`$[1].devmem`"),
        ('[{"id":"GPU-a","devmem":-1}]', "`$[0].devmem`"),
        ('[{"id":"GPU-a","devmem":2147483648}]', "`$[0].devmem`"),
        ('[{"id":"GPU-a","health":"true"}]', "`$[0].health`"),
        ('[{"index":1}]', "card 0: the uuid ''"),
        ('[{"id":"GPU a"}]', "card 0: the uuid 'GPU a'"),
        ('[{"id":"GPU,a"}]', "card 0: the uuid 'GPU,a'"),
        ('[{"id":"GPU-a"},{"id":"GPU-a","index":1}]', "2 cards have the uuid GPU-a"),
        ('[{"id":"GPU-a","migProfiles":[{}]}]', "card 0: the profile '' has no name"),
        (
            '[{"id":"GPU-a","migProfiles":[{"name":"1g","placements":[{"start":64,"size":1}]}]}]',
            "profile '1g'",
        ),
        (
            '[{"id":"GPU-a","migProfiles":[{"name":"1g","placements":[{"start":1}]}]}]',
            "profile '1g'",
        ),
        ('[{"custominfo":' + "[" * 100_000, "nested too deeply"),
        ("[" + " " * TEXT_MAX + "]", f"longer than {TEXT_MAX} characters"),
        ("x,1,1,1,T,0,true:" * (SHARES_MAX + 1), f"{SHARES_MAX + 1} cards are more than"),
    ],
)
def test_announcement_has_a_problem_with_place_and_remedy_when_invalid(
    text: str, wrong: str
) -> None:
    announced = read_text(text)
    assert wrong in announced.problem
    assert announced.cards == ()
    assert announced.problem.endswith("are kept: restart its device plugin")


def test_one_makers_list_that_is_wrong_leaves_no_half_of_a_node() -> None:
    announced = read_announcement({NVIDIA: json.dumps([listed()]), AMD: "[{}]"})
    assert announced.cards == ()
    assert f"annotation {AMD}: card 0" in announced.problem
    assert announced.vendors == ("nvidia", "amd")


def test_two_makers_cannot_have_a_card_in_common() -> None:
    text = json.dumps([listed()])
    assert "2 cards have the uuid GPU-a" in read_announcement({NVIDIA: text, AMD: text}).problem


def test_all_makers_together_have_no_more_cards_than_a_node_may_have() -> None:
    half = [listed(id=f"GPU-{number}") for number in range(SHARES_MAX)]
    announced = read_announcement({NVIDIA: json.dumps(half), AMD: json.dumps([listed(id="amd-1")])})
    assert f"{SHARES_MAX + 1} cards are more than {SHARES_MAX}" in announced.problem


def test_scores_of_pairs_count_both_ways_and_the_smaller_where_they_differ() -> None:
    text = (
        '[{"uuid":"a","score":{"b":60,"c":10,"a":1}},'
        '{"uuid":"b","score":{"a":20,"c":5}},{"uuid":"c","score":{"b":7}}]'
    )
    assert read(listed(), **{annotation_keys.PAIR_SCORES: text}).scores == {
        ("a", "b"): 20,
        ("b", "a"): 20,
        ("a", "c"): 10,
        ("c", "a"): 10,
        ("b", "c"): 5,
        ("c", "b"): 5,
    }


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("{}", "does not list scores"),
        ('[{"uuid":"a","score":{"b":-1}}]', "`$[0].score[...]`"),
        ('[{"x":' + "[" * 100_000, "nested too deeply"),
        (" " * (TEXT_MAX + 1), "longer than"),
    ],
)
def test_scores_that_cannot_be_read_cost_no_card(text: str, wrong: str) -> None:
    announced = read(listed(), **{annotation_keys.PAIR_SCORES: text})
    assert [card.uuid for card in announced.cards] == ["GPU-a"]
    assert (announced.scores, announced.problem) == ({}, "")
    assert annotation_keys.PAIR_SCORES in announced.warning
    assert wrong in announced.warning
