"""Preemption claims cards first and evicts then, also after failures in between."""

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest
from support.fakes.preemption_site import (
    BACKOFF,
    CARD,
    SPACE,
    EvictingServer,
    Site,
    budget,
    ending,
    victims_of,
)
from support.harness.extender_harness import (
    CLUSTER,
    DEADLINE_SECONDS,
    cards,
    replica,
)

from extender.preemption import preemption_queue
from extender.verbs import filter_wait
from ledger.core.model import commands
from ledger.core.model.denials import Denial, Reason
from ledger.kube.api.cluster_errors import BudgetExhausted, ClusterUnavailable
from ledger.kube.api.objects import Pod
from ledger.log.ledger_port import Accepted, Ledger
from ledger.log.memory_log import MemoryStore


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    """Run an extender that may evict."""
    server, store = EvictingServer(), MemoryStore()
    async with replica(store, server, evicting=server) as service:
        await service.register("n1", cards("GPU-0", "GPU-1"))
        yield Site(service, server, store)


WHOLE: dict[str, int] = {"gpu": 1, "gpumem": CARD}


async def test_the_cards_of_less_important_pods_are_claimed_and_the_pods_evicted(site: Site):
    await site.running("low", 1, **WHOLE)
    await site.running("lower", 0, **WHOLE)
    high = await site.waiting("high", 5, **WHOLE)
    assert await site.asked(high) == "evicted"
    assert site.server.evicted == ["lower"]
    [claim] = site.claims()
    assert (claim.key, victims_of(claim)) == ("pods/high", ["lower"])
    assert ("pods_preempted_total",) in site.replica.counted


async def test_no_pod_is_evicted_before_the_claim_is_in_the_log(site: Site):
    await site.running("low", 0, gpu=2, gpumem=CARD)
    claimed: list[bool] = []

    async def look() -> None:
        claimed.append(bool(site.claims()))

    site.server.before_evict = look
    await site.asked(await site.waiting("high", 5, **WHOLE))
    assert claimed == [True]


async def test_what_the_victims_leave_goes_to_the_pod_and_to_no_other(site: Site):
    await site.running("low", 0, gpu=2, gpumem=CARD)
    high = await site.waiting("high", 5, gpu=2, gpumem=CARD)
    thief = await site.waiting("thief", 5, gpu=1, gpumem=1000)
    await site.asked(high)
    await site.ended("low")
    assert await site.replica.places(thief, "n1") == []
    assert "CardClaimed" in await site.replica.bind(thief, "n1")
    assert await site.replica.places(high, "n1") == ["n1"]
    assert await site.replica.bind(high, "n1") == ""
    assert not site.claims()


async def test_filter_waits_for_the_end_of_victims_that_the_scheduler_saw_first(
    site: Site, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(filter_wait, "AGAIN_SECONDS", 0.0)
    await site.running("low", 0, gpu=2, gpumem=CARD)
    high = await site.waiting("high", 5, **WHOLE)
    await site.asked(high)
    asking = asyncio.create_task(site.replica.places(high, "n1"))
    await asyncio.sleep(0)
    await site.ended("low")
    assert await asking == ["n1"]


async def test_equals_are_never_evicted(site: Site):
    await site.running("low", 5, gpu=2, gpumem=CARD)
    assert await site.asked(await site.waiting("high", 5, **WHOLE)) == "nowhere"
    assert not site.claims()
    assert not site.server.evicted


async def test_pod_that_never_preempts_waits(site: Site):
    await site.running("low", 0, gpu=2, gpumem=CARD)
    patient = await site.waiting("patient", 5, **WHOLE)
    spec = msgspec.structs.replace(patient.spec, preemption_policy="Never")
    assert not await site.replica.places(msgspec.structs.replace(patient, spec=spec), "n1")
    assert await site.asked(await site.waiting("high", 5, **WHOLE)) == "evicted"
    assert [claim.key for claim in site.claims()] == ["pods/high"]


async def test_pods_that_end_anyway_are_counted_on_and_not_evicted(site: Site):
    await site.running("ending", 9, **WHOLE)
    await site.running("low", 0, **WHOLE)
    site.server.pods["ending"] = ending(site.server.pods["ending"])
    assert await site.asked(await site.waiting("high", 5, **WHOLE)) == "evicted"
    assert not site.server.evicted
    [claim] = site.claims()
    assert victims_of(claim) == ["ending"]


async def test_pod_of_another_scheduler_is_not_evicted(site: Site):
    low = await site.running("low", 0, gpu=2, gpumem=CARD)
    placed = site.replica.placed("low")
    assert placed is not None
    key = (SPACE, "pods/low", low.metadata.uid)
    await site.replica.tell(commands.Unplace(*key, f"{CLUSTER}/n1", "unbound"))
    await site.replica.tell(commands.Place(*key, f"{CLUSTER}/n1", placed.parts, seen=True))
    assert await site.asked(await site.waiting("high", 5, **WHOLE)) == "nowhere"


async def test_budget_that_allows_no_disruption_is_respected(site: Site):
    await site.running("guarded", 0, **WHOLE)
    await site.running("low", 1, **WHOLE)
    site.server.budgets = [budget("guarded", 0)]
    await site.asked(await site.waiting("high", 5, **WHOLE))
    assert site.server.evicted == ["low"]


async def test_refused_eviction_withdraws_the_claim_and_tries_another_node(site: Site):
    await site.running("low", 1, gpu=2, gpumem=CARD)
    await site.replica.register("n2", cards("GPU-2"))
    await site.running("guarded", 0, **WHOLE)
    site.server.refusals = {"guarded": BudgetExhausted("the budget needs it")}
    high = await site.waiting("high", 5, **WHOLE)
    assert await site.asked(high, "n1", "n2") == "protected"
    assert not site.claims()
    assert await site.asked(high, "n1", "n2") == "evicted"
    assert site.server.evicted == ["low"]


async def test_a_victim_that_is_gone_or_another_one_by_now_is_passed_over(site: Site):
    await site.running("one", 0, **WHOLE)
    await site.running("two", 0, **WHOLE)
    high = await site.waiting("high", 5, gpu=2, gpumem=CARD)

    async def replaced() -> None:
        site.server.pods["one"] = _renamed(site.server.pods["one"])
        site.server.before_evict = None

    site.server.before_evict = replaced
    assert await site.asked(high) == "evicted"
    assert site.server.evicted == ["two"]


async def test_evicting_ends_with_the_claim(site: Site):
    await site.running("one", 0, **WHOLE)
    await site.running("two", 0, **WHOLE)
    high = await site.waiting("high", 5, gpu=2, gpumem=CARD)

    async def gone() -> None:
        site.server.before_evict = None
        await site.ended("high")

    site.server.before_evict = gone
    assert await site.asked(high) == "overtaken"
    assert len(site.server.evicted) == 1
    assert not site.claims()


async def test_another_replica_goes_on_with_the_claim_of_one_that_died(site: Site):
    await site.running("one", 0, **WHOLE)
    await site.running("two", 0, **WHOLE)
    high = await site.waiting("high", 5, gpu=2, gpumem=CARD)
    site.server.refusals = dict.fromkeys(("one", "two"), ClusterUnavailable("it died"))
    assert await site.asked(high) == "unavailable"
    before = site.claims()
    site.server.refusals = {}
    async with replica(site.store, site.server, evicting=site.server) as other:
        await other.caught_up(site.replica)
        successor = Site(other, site.server, site.store)
        assert await successor.asked(high) == "evicted"
        assert sorted(site.server.evicted) == ["one", "two"]
        assert successor.claims() == before


async def test_no_pod_is_evicted_for_a_pod_that_is_gone_or_bound(site: Site):
    await site.running("low", 0, gpu=2, gpumem=CARD)
    high = await site.waiting("high", 5, **WHOLE)
    site.server.change("high", node="n9")
    assert await site.asked(high) == "gone"
    del site.server.pods["high"]
    assert await site.asked(high) == "gone"
    assert not site.claims()


async def test_no_pod_is_evicted_when_an_assumed_placement_is_in_the_way(site: Site):
    await site.running("low", 0, gpu=1, gpumem=CARD)
    guessed = await site.waiting("guessed", 5, **WHOLE)
    high = await site.waiting("high", 5, **WHOLE)
    assert await site.replica.places(guessed, "n1") == ["n1"]
    assert await site.asked(high) == "fits"
    assert not site.server.evicted


async def test_preemption_resumes_once_an_assumed_placement_is_real(site: Site):
    await site.running("low", 0, gpu=1, gpumem=CARD)
    guessed = await site.waiting("guessed", 0, **WHOLE)
    high = await site.waiting("high", 5, **WHOLE)
    assert await site.replica.places(guessed, "n1") == ["n1"]
    assert await site.asked(high) == "fits"
    assert await site.replica.bind(guessed, "n1") == ""
    await site.tried_until("evicted")
    assert len(site.server.evicted) == 1


async def test_a_pod_that_fits_and_is_asked_about_again_is_tried_at_once(
    site: Site, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(BACKOFF, "lengthen", lambda backoff: setattr(backoff, "seconds", 600.0))
    monkeypatch.setattr(preemption_queue, "PAUSE_SECONDS_MAX", 0.0)
    await site.running("low", 0, gpu=1, gpumem=CARD)
    guessed = await site.waiting("guessed", 0, **WHOLE)
    high = await site.waiting("high", 5, **WHOLE)
    assert await site.replica.places(guessed, "n1") == ["n1"]
    assert await site.asked(high) == "fits"
    assert await site.replica.bind(guessed, "n1") == ""
    assert await site.asked(high) == "evicted"


async def test_who_leaves_for_one_pod_leaves_nothing_for_another(site: Site):
    await site.running("low", 0, gpu=2, gpumem=CARD)
    assert await site.asked(await site.waiting("high", 5, gpu=2, gpumem=CARD)) == "evicted"
    await site.asked(await site.waiting("other", 9, **WHOLE))
    await site.outcome_after(2)
    assert sorted(site.outcomes()[1:3]) == ["evicted", "nowhere"], "the first one goes on"
    assert site.server.evicted == ["low"]
    assert len(site.claims()) == 1


async def test_preemptor_and_victims_get_events(site: Site):
    await site.running("low", 0, gpu=2, gpumem=CARD)
    await site.asked(await site.waiting("high", 5, **WHOLE))
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not {"Preempted", "PreemptionStarted"} <= {
            event.reason for event in site.server.events
        }:
            await site.server.told.acquire()
    told = {event.reason: event for event in site.server.events}
    assert told["Preempted"].name == "low"
    assert told["Preempted"].note == ("by pod uid-high of priority 5, for want of cards on node n1")
    assert (told["PreemptionStarted"].name, told["PreemptionStarted"].action) == (
        "high",
        "Preempting",
    )


def _renamed(pod: Pod) -> Pod:
    return msgspec.structs.replace(
        pod, metadata=msgspec.structs.replace(pod.metadata, uid="another")
    )


async def test_room_is_made_without_being_asked_again_once_a_budget_allows_it(site: Site):
    await site.running("guarded", 0, gpu=2, gpumem=CARD)
    site.server.budgets = [budget("guarded", 0)]
    assert await site.asked(await site.waiting("high", 5, **WHOLE)) == "nowhere"
    site.server.budgets = []
    assert await site.outcome_after(1) == "evicted"
    assert site.server.evicted == ["guarded"]


async def test_a_pod_that_the_scheduler_asks_no_more_about_is_given_up(site: Site):
    await site.running("low", 9, gpu=2, gpumem=CARD)
    assert await site.asked(await site.waiting("high", 5, **WHOLE)) == "nowhere"
    site.replica.ahead += preemption_queue.ASKED_SECONDS
    assert await site.outcome_after(1) == "given up"


async def test_nodes_are_looked_at_some_at_a_time_until_all_were(
    site: Site, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(preemption_queue, "NODES_MAX", 1)
    await site.running("high", 9, gpu=2, gpumem=CARD)
    await site.replica.register("n2", cards("GPU-2"))
    await site.running("low", 0, **WHOLE)
    wanting = await site.waiting("high-2", 5, **WHOLE)
    assert await site.asked(wanting, "n1", "n2") == "nowhere"
    assert await site.asked(wanting, "n1", "n2") == "evicted"
    assert site.server.evicted == ["low"]


async def test_no_more_pods_than_the_bound_wait(site: Site, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(preemption_queue, "PENDING_MAX", 1)
    await site.running("low", 9, gpu=2, gpumem=CARD)
    first, other = [await site.waiting(name, 5, **WHOLE) for name in ("one", "other")]
    assert await site.asked(first) == "nowhere"
    await site.replica.places(other, "n1")
    assert await site.asked(first) == "nowhere"
    assert site.outcomes() == ["nowhere", "nowhere"]


async def test_protected_victims_are_evicted_first(site: Site):
    await site.running("free", 0, **WHOLE)
    await site.running("guarded", 0, **WHOLE)
    site.server.budgets = [budget("guarded", 1)]
    site.server.refusals = {"guarded": BudgetExhausted("another eviction was first")}
    assert await site.asked(await site.waiting("high", 5, gpu=2, gpumem=CARD)) == "protected"
    assert not site.server.evicted


async def test_no_pod_is_evicted_when_the_ledger_refuses_the_claim(site: Site):
    async with replica(server=site.server, ledger=Refusing, evicting=site.server) as service:
        await service.register("n1", cards("GPU-0"))
        other = Site(service, site.server, site.store)
        await other.running("low", 0, **WHOLE)
        assert await other.asked(await other.waiting("high", 5, **WHOLE)) == "nowhere"
    assert not site.server.evicted


class Refusing:
    """A ledger that refuses every claim."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    async def submit(
        self, command: commands.AnyCommand, *, dry_run: bool = False
    ) -> Accepted | Denial:
        if isinstance(command, commands.MakeRoom):
            return Denial(Reason.CARD_CLAIMED, "somebody else holds it", transient=True)
        return await self._ledger.submit(command, dry_run=dry_run)
