"""A larger card that is added later does not raise admitted demand."""

from typing import Any

import msgspec
import pytest
from support.fakes.apiserver import Object, pod_body
from support.fakes.full_cluster import DEPLOYMENTS, workload
from support.harness.settlement import CLUSTER, World, full_world, settling

from ledger.core.decide.decider import decide
from ledger.core.evolve.evolver import evolve
from ledger.core.model import accounts
from ledger.core.model.cards import Card, Part, Phase, Share
from ledger.core.model.commands import AnyCommand, Observe, Place, RegisterCards, Reserve, SetLimits
from ledger.core.model.denials import Denial
from ledger.core.model.devices import Device
from ledger.core.model.state import State
from ledger.core.model.traits import Reach, Requirement
from ledger.kube.api.objects import Pod
from ledger.kube.requests.demand_rules import CardSize, DemandRules
from ledger.log.ledger_port import Accepted
from webhook.settlement.observation_commands import (
    ObservedObject,
    command_if_changed,
    with_promised_demand,
)
from webhook.settlement.pod_observation import observe_pod

GPU, MEMORY, CORES = "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores"
SPACE, KEY, UID = "c/red", "pods/p", "u1"
PROMISED = {GPU: 1, MEMORY: 16_000, CORES: 100}
PLACE = SPACE, KEY, UID


def doing(*commands: AnyCommand) -> State:
    state = State()
    for command in commands:
        decided = decide(state, command)
        assert not isinstance(decided, Denial), decided
        for event in decided:
            evolve(state, event, 1)
    return state


def seen(memory: int, version: int = 20, **requests: Any) -> ObservedObject:
    """Return the observation of a pod that asks for a whole card; the largest has so many MiB."""
    body = pod_body("p", gpumem=0, gpucores=0)
    body["metadata"] |= {"namespace": "red", "uid": UID, "resourceVersion": str(version)}
    body["spec"]["containers"][0]["resources"]["limits"] |= requests
    rules = DemandRules(sizes=(CardSize("nvidia", "A100", memory),), managed=("cpu",))
    return observe_pod(msgspec.convert(body, Pod), "c", rules, 0, deleted=False)


ADMITTED = Reserve(SPACE, KEY, UID, PROMISED)
EXISTS = Observe(SPACE, KEY, UID, 10, PROMISED, traits=("!best-effort",))


@pytest.mark.parametrize("before", [[ADMITTED], [EXISTS], [ADMITTED, EXISTS]])
def test_a_larger_card_raises_nothing_that_was_promised(before: list[AnyCommand]) -> None:
    observed = with_promised_demand(doing(*before), seen(80_000))
    assert observed.demand == PROMISED


def test_changed_status_needs_no_command_after_a_larger_card() -> None:
    state = doing(EXISTS)
    entry = state.namespaces[SPACE].entries[KEY]
    assert command_if_changed(entry, with_promised_demand(state, seen(80_000)), "a") is None
    assert command_if_changed(entry, seen(80_000), "a") is not None


def test_where_the_largest_card_is_gone_less_is_charged() -> None:
    assert with_promised_demand(doing(EXISTS), seen(8000)).demand[MEMORY] == 8000


def test_memory_unknown_at_admission_is_not_charged_later() -> None:
    known = {GPU: 1, CORES: 100}
    observed = with_promised_demand(doing(Observe(SPACE, KEY, UID, 10, known)), seen(80_000))
    assert observed.demand == known


def test_allocated_devices_are_charged_in_full() -> None:
    device = Device("claim", "r", "gpu.nvidia.com", "n1", "g0")
    allocated = msgspec.structs.replace(seen(80_000), devices=(device,))
    assert with_promised_demand(doing(EXISTS), allocated).demand[MEMORY] == 80_000
    state = doing(msgspec.structs.replace(EXISTS, devices=(device,)))
    assert with_promised_demand(state, seen(80_000)).demand[MEMORY] == 80_000


ALLOCATED = msgspec.structs.replace(
    EXISTS,
    version=12,
    demand={**PROMISED, MEMORY: 40_000},
    devices=(Device("claim", "r", "gpu.nvidia.com", "n1", "g0"),),
)
"""The pod `EXISTS` after it has got a larger device."""


def test_recorded_devices_are_charged_in_full() -> None:
    assert with_promised_demand(doing(EXISTS, ALLOCATED), seen(40_000)).demand[MEMORY] == 40_000


def test_demand_of_before_returns_when_the_devices_are_gone() -> None:
    gone = msgspec.structs.replace(seen(80_000), devices=())
    assert with_promised_demand(doing(EXISTS, ALLOCATED), gone).demand == PROMISED


def test_devices_of_another_pod_of_the_name_raise_nothing() -> None:
    older = (msgspec.structs.replace(command, uid="older") for command in (EXISTS, ALLOCATED))
    state = doing(*older, ADMITTED)
    assert with_promised_demand(state, seen(80_000)).demand == PROMISED


def test_earlier_demand_of_another_pod_of_the_name_lowers_nothing() -> None:
    older = (msgspec.structs.replace(command, uid="older") for command in (EXISTS, ALLOCATED))
    assert with_promised_demand(doing(*older), seen(80_000)).demand[MEMORY] == 80_000


def test_demand_of_assumed_amounts_alone_counts_when_nothing_was_admitted() -> None:
    """Such as that of a resource claim for all devices."""
    assumed = msgspec.structs.replace(seen(80_000), demand={GPU: 3}, assumed=(GPU,))
    state = doing(msgspec.structs.replace(EXISTS, uid="other"))
    assert with_promised_demand(state, assumed).demand == {GPU: 3}


def test_another_pod_of_the_name_is_charged_in_full() -> None:
    observed = with_promised_demand(doing(Observe(SPACE, KEY, "other", 10, PROMISED)), seen(80_000))
    assert observed.demand[MEMORY] == 80_000
    assert with_promised_demand(State(), seen(80_000)).demand[MEMORY] == 80_000


def test_what_asks_for_more_cards_than_were_promised_is_charged_in_full() -> None:
    requests: dict[str, Any] = {GPU: "2"}
    observed = with_promised_demand(doing(EXISTS), seen(80_000, **requests))
    assert observed.demand[MEMORY] == 160_000


def test_more_of_a_native_resource_is_no_more_cards() -> None:
    observed = with_promised_demand(doing(EXISTS), seen(80_000, cpu="2"))
    assert (observed.demand[MEMORY], observed.demand["cpu"]) == (16_000, 2000)


def test_placed_pod_is_charged_its_placement() -> None:
    card = Card("GPU-1", 0, "A100", 40_000, 100, 10)
    parts = (Part("main", Phase.APP, (Share("GPU-1", 40_000, 100, exclusive=True),)),)
    state = doing(
        EXISTS,
        RegisterCards("c/n1", "hami", (card,)),
        Place(*PLACE, "c/n1", parts, {MEMORY: 40_000}),
    )
    assert with_promised_demand(state, seen(80_000)).demand[MEMORY] == 40_000
    assert with_promised_demand(state, seen(8000)).demand[MEMORY] == 40_000


async def register(world: World, node: str, memory: int) -> None:
    card = Card(f"GPU-{node}", 0, "A100", memory, 100, 10)
    command = RegisterCards(f"{CLUSTER}/{node}", "hami", (card,))
    assert isinstance(await world.writer.submit(command), Accepted)


def whole_card(name: str) -> Object:
    return pod_body(name, gpumem=0, gpucores=0)


async def test_a_larger_node_raises_neither_pods_nor_workloads_that_are_settled() -> None:
    memory = {"p": 16_000, "later": 80_000}
    web = "deployments.apps/web"
    async with full_world(rules=DemandRules()) as world, settling(world):
        await world.synced()
        await register(world, "n1", 16_000)
        world.server.create("pods", "red", whole_card("p"))
        template = {"spec": whole_card("x")["spec"]}
        made = workload(DEPLOYMENTS, "web", replicas=2, template=template)
        world.server.create(DEPLOYMENTS.name, "red", made)
        await world.until(lambda: world.entry("p") is not None and world.root(web) is not None)

        by_label = (Requirement("a", "Exists"),)
        await world.writer.submit(
            SetLimits(accounts.universe("a"), (), {}, reach=Reach(), selects=by_label)
        )
        # A second node confirms the size.
        await register(world, "n2", 80_000)
        await register(world, "n3", 80_000)
        world.server.update("pods", "red", "p", metadata={"labels": {"a": "b"}})
        again = {"generation": 2, "labels": {"a": "b"}}
        world.server.update(DEPLOYMENTS.name, "red", "web", metadata=again, spec={"paused": True})
        world.server.create("pods", "red", whole_card("later"))
        await world.until(
            lambda: world.entry("later") is not None and world.root(web).committed.generation == 2
        )
        assert {name: world.entry(name).charge[MEMORY] for name in memory} == memory
        assert world.root(web).charge[MEMORY] == 2 * 16_000
