"""The claim of a pod's extended resources adds nothing if the pod is charged for them."""

from typing import Any

import pytest
from support.claims.claim_reviews import (
    CLAIM_NAME,
    CONTROLLER,
    EXTENDED,
    SCHEDULER,
    ClaimTeam,
    charged_alone,
    claim_spec,
    claiming_pod,
    device_class,
    generated,
    resource_claim,
    resource_slice,
)
from support.fakes.owner_cluster import Manifest

POD = claiming_pod()


def extended_claim(pod: Manifest, count: int = 1, cls: str = "whole", **changed: Any) -> Manifest:
    metadata = generated(pod, annotations={EXTENDED: "true"}, **changed)["metadata"]
    spec = claim_spec(count=count, cls=cls)
    del spec["devices"]["requests"][0]["exactly"]["capacity"]
    return {**resource_claim("p-g-x1", spec), "metadata": metadata}


@pytest.fixture
async def with_cards() -> ClaimTeam:
    """Return a namespace with a pod that asks for one card, which a class serves."""
    team = ClaimTeam()
    team.list_classes(
        device_class("gpu"),
        device_class("whole", extended="nvidia.com/gpu"),
        device_class("odd", extended="example.com/gpu"),
    )
    card = claiming_pod(**{"nvidia.com/gpu": "1"})
    del card["spec"]["resourceClaims"]
    return await of_pod(team, card)


async def of_pod(team: ClaimTeam, pod: Manifest) -> ClaimTeam:
    """Return a team with a pod that is charged and exists."""
    assert (await team.create(pod))["allowed"]
    team.cluster.put(pod)
    team.ledger.submitted.clear()
    return team


async def test_claim_of_extended_resources_adds_nothing(with_cards: ClaimTeam) -> None:
    assert not await charged_alone(with_cards, extended_claim(POD), SCHEDULER)


@pytest.mark.parametrize("user", ["ada", CONTROLLER])
async def test_extended_claim_of_another_creator_counts_by_itself(
    user: str, with_cards: ClaimTeam
) -> None:
    assert await charged_alone(with_cards, extended_claim(POD), user)


@pytest.mark.parametrize(("count", "cls"), [(2, "whole"), (1, "gpu"), (1, "odd")])
async def test_extended_claim_counts_by_itself_beyond_the_pods_cards(
    count: int, cls: str, with_cards: ClaimTeam
) -> None:
    assert await charged_alone(with_cards, extended_claim(POD, count, cls), SCHEDULER)


async def test_extended_claim_with_another_class_counts_by_itself(with_cards: ClaimTeam) -> None:
    claim, other = extended_claim(POD), extended_claim(POD, cls="gpu")
    [request] = other["spec"]["devices"]["requests"]
    claim["spec"]["devices"]["requests"].append({**request, "name": "more"})
    assert await charged_alone(with_cards, claim, SCHEDULER)


async def test_second_extended_claim_counts_by_itself(with_cards: ClaimTeam) -> None:
    first = extended_claim(POD)
    assert not await charged_alone(with_cards, first, SCHEDULER)
    with_cards.cluster.put(first)
    assert await charged_alone(with_cards, extended_claim(POD, named="p-ext-2"), SCHEDULER)


async def test_charge_for_claims_of_templates_covers_no_extended_claim() -> None:
    team = ClaimTeam()
    team.list_classes(device_class("gpu"), device_class("whole", extended="nvidia.com/gpu"))
    await of_pod(team, POD)
    assert await charged_alone(team, extended_claim(POD), SCHEDULER)


@pytest.mark.parametrize(
    ("part", "alone"),
    [
        ({"nvidia.com/gpumem": "1"}, True),
        ({"nvidia.com/gpumem-percentage": "1"}, True),
        ({"nvidia.com/gpumem": "81920"}, False),
        ({}, False),
    ],
)
async def test_extended_claim_counts_by_itself_beyond_the_part_of_a_card(
    part: dict[str, str], alone: bool
) -> None:
    """The scheduler gives a whole card to a pod that requests 1 MiB of one."""
    team = ClaimTeam()
    team.list_classes(device_class("whole", extended="nvidia.com/gpu"))
    card = claiming_pod(**{"nvidia.com/gpu": "1", **part})
    del card["spec"]["resourceClaims"]
    await of_pod(team, card)
    team.list_slices(resource_slice(shared=False))
    assert await charged_alone(team, extended_claim(POD), SCHEDULER) is alone


async def test_extended_claim_of_an_uncharged_pod_counts_by_itself() -> None:
    team = ClaimTeam()
    team.list_classes(device_class("whole", extended="nvidia.com/gpu"))
    assert await charged_alone(team, extended_claim(POD), SCHEDULER)


async def test_annotation_of_extended_resources_wins_over_a_claims_name() -> None:
    team = ClaimTeam()
    assert (await team.create(POD))["allowed"]
    team.ledger.submitted.clear()
    both = {EXTENDED: "true", CLAIM_NAME: "g"}
    assert await charged_alone(team, generated(POD, annotations=both))
