"""An allocation that is reviewed may take more than its holder is charged only if it fits."""

from copy import deepcopy
from typing import Any, Final

import msgspec
import pytest
from support.claims.claim_reviews import (
    CONTROLLER,
    EXTENDED,
    GI,
    SCHEDULER,
    ClaimTeam,
    claim_spec,
    claim_template,
    claiming_pod,
    device_class,
    generated,
    read,
    resource_claim,
    resource_slice,
)
from support.fakes.owner_cluster import Manifest

from ledger.core.model.denials import Denial, Reason
from webhook.context.admission_settings import AdmissionSettings

POD: Final = claiming_pod()


def allocated(claim: Manifest, gi: int, **metadata: Any) -> Manifest:
    """Return a claim with an allocation that consumes so many Gi."""
    result = {
        "request": "main",
        "driver": "gpu.nvidia.com",
        "pool": "n1",
        "device": "gpu-0",
        "consumedCapacity": {"memory": f"{gi}Gi"},
    }
    changed = deepcopy(claim)
    changed["metadata"].update(metadata)
    changed["status"] = {"allocation": {"devices": {"results": [result]}}}
    return changed


async def written(team: ClaimTeam, new: Manifest, old: Manifest) -> tuple[bool, str]:
    """Return whether the status may be written, and the reason of the refusal."""
    team.ledger.submitted.clear()
    response = await team.update(new, old, SCHEDULER, "status")
    assert team.reserved() == {}, "a review of a status reserves nothing"
    causes = response.get("status", {}).get("details", {}).get("causes", [{"reason": ""}])
    return response["allowed"], causes[0]["reason"]


@pytest.mark.parametrize(
    ("gi", "answer"), [(8, (True, "")), (16, (True, "")), (17, (False, "ExceedsLimit"))]
)
async def test_allocation_of_an_own_claim_takes_what_fits(gi: int, answer: Any) -> None:
    team, claim = ClaimTeam(), resource_claim("c")
    team.ledger.limit(memory=16 * GI)
    assert (await team.create(claim))["allowed"]
    assert await written(team, allocated(claim, gi), claim) == answer


async def test_allocation_within_the_charge_needs_no_room() -> None:
    team, claim = ClaimTeam(), resource_claim("c")
    assert (await team.create(claim))["allowed"]
    team.ledger.limit(memory=1)
    assert await written(team, allocated(claim, 8), claim) == (True, "")
    assert team.ledger.submitted == [], "the ledger is asked nothing"
    assert await written(team, allocated(claim, 9), claim) == (False, "ExceedsLimit")


@pytest.mark.parametrize(
    ("gi", "answer"), [(8, (True, "")), (16, (True, "")), (17, (False, "ExceedsLimit"))]
)
async def test_allocation_of_a_generated_claim_raises_its_pod(gi: int, answer: Any) -> None:
    team, claim = ClaimTeam(POD), generated(POD)
    team.ledger.limit(memory=16 * GI)
    assert (await team.create(POD))["allowed"]
    assert (await team.create(claim, CONTROLLER))["allowed"]
    assert await written(team, allocated(claim, gi), claim) == answer


async def test_larger_cards_do_not_raise_what_was_not_allocated() -> None:
    """The second claim takes a whole card, for which the pod was charged by the largest one."""
    pod = claiming_pod("p", "small", "whole")
    team, claim = ClaimTeam(pod), generated(pod)
    team.list_templates(claim_template(), claim_template("whole", capacity=None))
    team.list_slices(whole_cards(80))
    assert (await team.create(pod))["allowed"]
    assert team.reserved() == {"pods/p": 160 * GI}
    team.list_slices(whole_cards(200))
    team.ledger.limit(memory=1)
    assert await written(team, allocated(claim, 80), claim) == (True, "")


def whole_cards(gi: int) -> Manifest:
    """Return a slice of cards of so many Gi that are not shared."""
    made = resource_slice(gi=gi)
    for device in made["spec"]["devices"]:
        device["allowMultipleAllocations"] = False
        device["capacity"]["memory"].pop("requestPolicy", None)
    return made


async def test_claim_of_a_pod_that_is_not_charged_needs_room_of_its_own() -> None:
    team, claim = ClaimTeam(POD), generated(POD)
    team.ledger.limit(memory=7 * GI)
    assert await written(team, allocated(claim, 7), claim) == (True, "")
    assert await written(team, allocated(claim, 8), claim) == (False, "ExceedsLimit")


@pytest.mark.parametrize(
    ("gi", "answer"), [(8, (True, "")), (16, (True, "")), (17, (False, "ExceedsLimit"))]
)
@pytest.mark.parametrize("cls", ["gpu", "whole"])
async def test_allocation_of_extended_resources_raises_their_pod(
    cls: str, gi: int, answer: Any
) -> None:
    """The amount replaces what the containers were charged; `gpu` serves no resource any more."""
    pod = claiming_pod(**{"nvidia.com/gpu": "1", "nvidia.com/gpumem": str(8 * GI)})
    del pod["spec"]["resourceClaims"]
    team = ClaimTeam(pod)
    team.list_classes(device_class("gpu"), device_class("whole", extended="nvidia.com/gpu"))
    team.ledger.limit(memory=16 * GI)
    assert (await team.create(pod))["allowed"]
    assert team.reserved() == {"pods/p": 8 * GI}
    claim = generated(pod, annotations={EXTENDED: "true"})
    claim["spec"] = claim_spec(cls=cls)
    assert await written(team, allocated(claim, gi), claim) == answer


async def test_extended_claim_of_a_pod_that_is_gone_needs_room_of_its_own() -> None:
    team, claim = ClaimTeam(), generated(POD, annotations={EXTENDED: "true"})
    team.ledger.limit(memory=7 * GI)
    assert await written(team, allocated(claim, 7), claim) == (True, "")
    assert await written(team, allocated(claim, 8), claim) == (False, "ExceedsLimit")


async def test_cleared_allocation_is_allowed() -> None:
    team, claim = ClaimTeam(), resource_claim("c")
    team.ledger.limit(memory=1)
    assert await written(team, claim, allocated(claim, 8)) == (True, "")


@pytest.mark.parametrize("mode", ["warn", "off"])
async def test_allocation_is_allowed_where_limits_do_not_hold(mode: str) -> None:
    team, claim = ClaimTeam(mode=mode), resource_claim("c")
    team.ledger.limit(memory=1)
    assert await written(team, allocated(claim, 8), claim) == (True, "")


@pytest.mark.parametrize("allow", [False, True])
async def test_allocation_waits_for_the_ledger_unless_a_setting_allows(allow: bool) -> None:
    settings = msgspec.structs.replace(AdmissionSettings(), allow_unavailable=allow)
    team, claim = ClaimTeam(settings=settings), resource_claim("c")
    team.ledger.answer = Denial(Reason.LEDGER_UNAVAILABLE, "no answer", transient=True)
    assert (await written(team, allocated(claim, 8), claim))[0] is allow


def test_builder_makes_an_allocation_that_is_read() -> None:
    """Otherwise each test above would be allowed."""
    given = ClaimTeam().store.allocation(read(allocated(resource_claim("c"), 9)))
    assert given is not None
    assert given.amounts["nvidia.com/gpumem"] == 9 * GI
