"""The scheduler is woken by one write for a refused pod that fits now and was not asked about."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import pytest
from support.harness.extender_harness import (
    ExtenderReplica,
    ModelServer,
    cards,
    pod,
    replica,
)

from extender.verbs import scheduler_wakeup
from ledger.core.model.cards import Part, Phase, Share
from ledger.core.model.commands import End, MakeRoom, SetLimits
from ledger.kube.api.cluster_errors import ClusterError, Forbidden, NotFound
from ledger.kube.api.objects import ApiNode, ObjectMeta
from ledger.kube.hami.annotation_keys import ROOM_FOUND
from ledger.log.memory_log import MemoryStore

HOLDER: Final = pod("holder", gpu=1, gpumem=12_000)
LATE: Final = pod("late", gpu=1, gpumem=8_000)
PART: Final = pod("part", gpu=1, **{"gpumem-percentage": 100})
QUOTA: Final = "east/team/resourcequotas/q"
NODES: Final = ("n1", "n2")
WOKEN: Final = ("scheduler_wakeups_total",)


@pytest.fixture(autouse=True)
def looks_are_made_by_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler_wakeup, "LOOK_SECONDS", 3_600.0)


@pytest.fixture
def server() -> ModelServer:
    made = ModelServer()
    made.add(HOLDER, LATE, PART)
    made.nodes = {name: ApiNode(ObjectMeta(name=name, resource_version="1")) for name in NODES}
    return made


@pytest.fixture
async def service(server: ModelServer) -> AsyncIterator[ExtenderReplica]:
    """Run an extender whose only node is nearly full."""
    async with replica(server=server) as made:
        await made.register("n1", cards("GPU-0"))
        await made.create(HOLDER, LATE, PART)
        assert await made.bind(HOLDER, "n1") == ""
        yield made


async def looks(service: ExtenderReplica, count: int = 2) -> None:
    assert service.extender.wakeup is not None
    for _ in range(count):
        await service.extender.wakeup.look()


def woken(server: ModelServer) -> list[str]:
    """Return the nodes with the annotation that wakes the scheduler."""
    return [
        name
        for name, node in server.nodes.items()
        if ROOM_FOUND in (node.metadata.annotations or {})
    ]


async def release(service: ExtenderReplica) -> None:
    await service.tell(End("east/team", "pods/holder", "uid-holder", 0, "deleted"))


async def add_card(service: ExtenderReplica) -> None:
    await service.register("n1", cards("GPU-0", "GPU-1"))


async def add_node(service: ExtenderReplica) -> None:
    await service.register("n2", cards("GPU-2"))


@pytest.mark.parametrize(
    ("gain", "node"),
    [(release, "n1"), (add_card, "n1"), (add_node, "n2")],
    ids=["a release", "a card", "a node"],
)
async def test_the_scheduler_is_woken_when_a_refused_pod_fits(
    service: ExtenderReplica,
    server: ModelServer,
    gain: Callable[[ExtenderReplica], Awaitable[None]],
    node: str,
) -> None:
    assert await service.places(LATE, *NODES) == []
    await looks(service)
    assert woken(server) == []
    await gain(service)
    await looks(service)
    assert woken(server) == [node]
    assert service.counted[-1] == WOKEN


async def test_the_scheduler_is_woken_when_a_quota_is_raised(
    service: ExtenderReplica, server: ModelServer
) -> None:
    await release(service)
    limits = {"limits.nvidia.com/gpumem": 10_000}
    await service.tell(SetLimits(QUOTA, ("east/team",), limits))
    assert await service.places(PART, "n1") == []
    await looks(service)
    assert woken(server) == []
    await service.tell(SetLimits(QUOTA, ("east/team",), {"limits.nvidia.com/gpumem": 16_000}))
    await looks(service)
    assert woken(server) == ["n1"]


async def test_the_scheduler_is_woken_when_an_assumed_pod_does_not_come(
    service: ExtenderReplica, server: ModelServer
) -> None:
    """The log has no record of this: the assumed placement only expires."""
    await release(service)
    assert await service.places(pod("other", gpu=1, gpumem=12_000), "n1") == ["n1"]
    assert await service.places(LATE, "n1") == []
    await looks(service)
    assert woken(server) == []
    service.ahead += 9.0
    await looks(service)
    assert woken(server) == ["n1"]


async def test_a_release_that_another_replica_settled_wakes_the_scheduler(
    server: ModelServer,
) -> None:
    store = MemoryStore()
    async with replica(store, server) as settling, replica(store, server) as asked:
        await settling.register("n1", cards("GPU-0"))
        await settling.create(HOLDER, LATE)
        assert await settling.bind(HOLDER, "n1") == ""
        await asked.caught_up(settling)
        assert await asked.places(LATE, "n1") == []
        await release(settling)
        await asked.caught_up(settling)
        await looks(settling)
        assert woken(server) == []
        await looks(asked)
        assert woken(server) == ["n1"]


async def test_room_on_a_node_that_the_scheduler_excluded_wakes_nothing(
    service: ExtenderReplica, server: ModelServer
) -> None:
    await add_node(service)
    assert await service.places(LATE, "n1") == []
    await service.register("n2", cards("GPU-2", "GPU-3"))
    await looks(service, 3)
    assert woken(server) == []
    await release(service)
    await looks(service)
    assert woken(server) == ["n1"]


@pytest.mark.parametrize("asked_again", ["refused", "fits"])
async def test_nothing_is_written_when_the_scheduler_asks_by_itself(
    service: ExtenderReplica, server: ModelServer, asked_again: str
) -> None:
    assert await service.places(LATE, "n1") == []
    await release(service)
    await looks(service, 1)
    if asked_again == "fits":
        assert await service.places(LATE, "n1") == ["n1"]
    else:
        assert await service.places(pod("larger", gpu=1, gpumem=12_000), "n1") == ["n1"]
        assert await service.places(LATE, "n1") == []
    await looks(service)
    assert woken(server) == []


async def test_a_pod_that_has_cards_elsewhere_wakes_nothing(
    service: ExtenderReplica, server: ModelServer
) -> None:
    await add_node(service)
    assert await service.places(HOLDER, "n2") == []
    await service.register("n2", cards("GPU-2", "GPU-3"))
    await looks(service)
    assert woken(server) == []


async def test_the_scheduler_is_woken_when_claimed_cards_are_free(
    service: ExtenderReplica, server: ModelServer
) -> None:
    """Another pod with the same request was refused after it, and the cards are not for that."""
    victims = (("east/team", "pods/holder", "uid-holder"),)
    parts = (Part("main", Phase.APP, (Share("GPU-0", 12_000, 0),)),)
    room = MakeRoom("east/team", "pods/late", "uid-late", "east/n1", parts, victims)
    await service.tell(room)
    for refused in (pod("late", gpu=1, gpumem=12_000), pod("later", gpu=1, gpumem=12_000)):
        assert await service.places(refused, "n1") == []
    await release(service)
    await looks(service)
    assert woken(server) == ["n1"]


async def test_a_pod_is_not_tried_again_when_nothing_has_changed(
    service: ExtenderReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await service.places(LATE, "n1") == []
    await service.create(pod("another", gpu=1))
    await looks(service, 1)
    monkeypatch.setattr(service.extender.wakeup, "_node_for", None)
    await looks(service)


async def test_one_write_wakes_the_scheduler_for_many_pods(
    service: ExtenderReplica, server: ModelServer
) -> None:
    for number in range(100):
        assert await service.places(pod(f"p-{number}", gpu=1, gpumem=8_000), "n1") == []
    await release(service)
    await looks(service, 5)
    assert service.counted.count(WOKEN) == 1


@pytest.mark.parametrize("error", [Forbidden("no right"), NotFound("no node n1")])
async def test_a_write_that_fails_is_repeated_after_a_pause(
    service: ExtenderReplica,
    server: ModelServer,
    monkeypatch: pytest.MonkeyPatch,
    error: ClusterError,
) -> None:
    async def refuse(*_: Any) -> None:
        raise error

    assert await service.places(LATE, "n1") == []
    await release(service)
    with monkeypatch.context() as failing:
        failing.setattr(server, "patch_node_annotations", refuse)
        await looks(service)
    await looks(service)
    assert woken(server) == [], "the pause is not over"
    assert service.extender.wakeup is not None
    monkeypatch.setattr(service.extender.wakeup._backoff, "is_over", lambda: True)
    await looks(service)
    assert woken(server) == ["n1"]


async def test_scheduler_is_woken_when_the_slice_of_a_card_is_gone(
    service: ExtenderReplica, server: ModelServer
) -> None:
    """No record of the log shows that."""
    await release(service)
    service.inventory.set_offered("n1", frozenset({"GPU-0"}))
    assert await service.places(LATE, "n1") == []
    await looks(service)
    assert woken(server) == []
    service.inventory.set_offered("n1", frozenset())
    await looks(service)
    assert woken(server) == ["n1"]
