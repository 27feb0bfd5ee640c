"""Select returns the nodes that prioritize scores best after filter, and packs pods as well."""

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.generators.fragmentation import SCORED, SELECTED, fragmentation
from support.harness.extender_harness import ExtenderReplica, ModelServer, cards, pod, replica

from extender.fit.inventory_fit import FitPreferences
from extender.scheduler_api.extender_wire import SCORE_MAX, ExtenderArgs
from extender.scheduler_extender import ExtenderSettings
from extender.verbs import filter_wait
from ledger.core.model.cards import HAMI, OWN
from ledger.kube.api.objects import Pod

NODES = ("n1", "n2", "n3", "n4")
MEMORY = st.sampled_from([4_000, 8_000, 16_000])
POLICIES = st.sampled_from(["binpack", "spread", "whole"])
NODE = st.tuples(MEMORY, st.integers(1, 3), st.sampled_from([OWN, HAMI]))
SHARE = st.tuples(st.integers(1, 2), st.sampled_from([1_000, 4_000, 8_000]))


@pytest.fixture(autouse=True, scope="module")
def _no_wait() -> Iterator[None]:
    """Let a pod that fits nowhere wait for nothing when it is asked about again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(filter_wait, "AGAIN_SECONDS", 0.0)
        yield


async def _best(service: ExtenderReplica, asked: Pod) -> list[str]:
    """Return the nodes with the best score of prioritize, in their order."""
    names = await service.places(asked, *NODES, "unknown")
    if len(names) < 2:
        return names
    scores = await service.extender.prioritize(ExtenderArgs(asked, None, names))
    return [each.host for each in scores if each.score == SCORE_MAX]


async def _selected(service: ExtenderReplica, asked: Pod) -> list[str]:
    answer = await service.extender.select(ExtenderArgs(asked, None, [*NODES, "unknown"]))
    assert not answer.error
    if not answer.node_names:
        filtered = await service.extender.filter(ExtenderArgs(asked, None, [*NODES, "unknown"]))
        assert answer == filtered, "it has the reasons of filter"
    return answer.node_names or []


@settings(max_examples=40, deadline=None)
@given(st.lists(NODE, min_size=4, max_size=4), st.lists(SHARE, max_size=8), POLICIES, st.booleans())
async def test_select_returns_the_nodes_that_prioritize_scores_best(
    fleet: list[tuple[int, int, str]], shares: list[tuple[int, int]], policy: str, contested: bool
) -> None:
    server = ModelServer()
    preferences = ExtenderSettings(FitPreferences(node_policy=policy), bind_wait_seconds=0.0)
    async with replica(server=server, settings=preferences) as service:
        for name, (memory, count, keeper) in zip(NODES, fleet, strict=True):
            uuids = [f"GPU-{name}-{number}" for number in range(count)]
            await service.register(name, cards(*uuids, memory=memory), keeper)
        for number, (count, memory) in enumerate(shares):
            asked = pod(f"p-{number}", gpu=count, gpumem=memory)
            server.add(asked)
            await service.create(asked)
            if contested:
                service.inventory.surprises += 1
            best = await _best(service, asked)
            assert await _selected(service, asked) == best
            if best:
                await service.bind(asked, best[number % len(best)])


@pytest.mark.parametrize("policy", ["binpack", "whole"])
async def test_selected_nodes_leave_no_more_splinters_than_scored_ones(policy: str) -> None:
    outcomes = {
        way: [await fragmentation(way, seed, policy=policy) for seed in range(2)]
        for way in (SCORED, SELECTED)
    }
    splinters = {way: sum(each.splinters for each in outcomes[way]) for way in outcomes}
    refused = {way: sum(each.refused for each in outcomes[way]) for way in outcomes}
    assert splinters[SELECTED] <= 1.05 * splinters[SCORED]
    assert 0 < refused[SELECTED] <= 1.05 * refused[SCORED]
