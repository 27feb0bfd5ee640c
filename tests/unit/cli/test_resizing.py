"""What a resize makes of a pod's containers."""

from gpuledger.resizing import Wanted, resized
from ledger.core.cards import Part, Phase, Share

PARTS = (
    Part("proxy", Phase.SIDECAR, (Share("GPU-a", 1_000, 5),)),
    Part("main", Phase.APP, (Share("GPU-a", 8_000, 30), Share("GPU-b", 8_000, 30))),
)


def wanted(memory: int | None = None, cores: int | None = None, container: str = "main") -> Wanted:
    return Wanted("team-a", "web-0", container, memory, cores)


def test_every_card_of_the_container_changes_and_no_other() -> None:
    after = resized(PARTS, wanted(memory=12_000))
    assert after[0] == PARTS[0]
    assert [(one.uuid, one.memory, one.cores) for one in after[1].shares] == [
        ("GPU-a", 12_000, 30),
        ("GPU-b", 12_000, 30),
    ]


def test_what_is_not_named_stays() -> None:
    assert resized(PARTS, wanted(cores=50, container="proxy"))[0].shares == (
        Share("GPU-a", 1_000, 50),
    )
    assert resized(PARTS, wanted()) == PARTS
