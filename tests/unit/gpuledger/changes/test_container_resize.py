"""The effect of a resize on a pod's containers."""

import pytest
from support.builders.decide_and_fold import apply

from gpuledger.changes import container_resize
from gpuledger.changes.container_resize import (
    ResizeRequest,
    refuse_claims,
    refuse_instances,
    resized,
)
from gpuledger.cli.exit_codes import CommandError, Exit
from ledger.core.model import commands
from ledger.core.model.cards import OWN, Card, Part, Phase, Share
from ledger.core.model.devices import CLAIM_PART
from ledger.core.model.state import State

PARTS = (
    Part("proxy", Phase.SIDECAR, (Share("GPU-a", 1_000, 5),)),
    Part("main", Phase.APP, (Share("GPU-a", 8_000, 30), Share("GPU-b", 8_000, 30))),
)


def wanted(
    memory: int | None = None, cores: int | None = None, container: str = "main"
) -> ResizeRequest:
    return ResizeRequest("team-a", "web-0", container, memory, cores)


def test_every_card_of_the_container_changes_and_no_other() -> None:
    after = resized(PARTS, wanted(memory=12_000))
    assert after[0] == PARTS[0]
    assert [(share.uuid, share.memory, share.cores) for share in after[1].shares] == [
        ("GPU-a", 12_000, 30),
        ("GPU-b", 12_000, 30),
    ]


def test_what_is_not_named_stays() -> None:
    assert resized(PARTS, wanted(cores=50, container="proxy"))[0].shares == (
        Share("GPU-a", 1_000, 50),
    )
    assert resized(PARTS, wanted()) == PARTS


def test_an_instance_of_a_card_that_is_cut_is_refused_with_what_to_do() -> None:
    instance = Share("GPU-c", 4_864, 14, profile="1g.5gb", size=1)
    parts = (*PARTS, Part("cut", Phase.APP, (instance,)))
    refuse_instances(parts, wanted(memory=2_000))
    with pytest.raises(
        CommandError, match=r"instance 1g\.5gb of GPU-c, .*create it with other"
    ) as stopped:
        refuse_instances(parts, wanted(memory=2_000, container="cut"))
    assert stopped.value.status is Exit.DENIED


def test_cards_of_resource_claims_are_refused_with_the_claims() -> None:
    refuse_claims(PARTS, wanted(memory=2_000))
    allocated = (Part("resourceclaims/a", Phase.APP, (Share("GPU-c", 4_864, 14),)),)
    with pytest.raises(CommandError, match=r"by resource claims \(a\).*create them") as stopped:
        refuse_claims(allocated, wanted(memory=2_000))
    assert stopped.value.status is Exit.DENIED


def test_a_pod_with_an_allocated_card_is_refused() -> None:
    state, part = State(), Part(f"{CLAIM_PART}a", Phase.APP, (Share("GPU-c", 4_864, 14),))
    pod = ("local/team-a", "pods/web-0", "u")
    for command in (
        commands.RegisterCards("local/n", OWN, (Card("GPU-c", 0, "A100", 16_000, 100, 10),)),
        commands.Reserve(*pod, {"nvidia.com/gpu": 1}),
        commands.Place(*pod, "local/n", (part,)),
    ):
        assert apply(state, command)
    with pytest.raises(CommandError, match="has its cards by resource claims"):
        container_resize._placed(state, "local", wanted(memory=2_000))
