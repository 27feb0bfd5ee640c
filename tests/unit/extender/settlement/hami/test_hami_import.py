"""The import records existing pods at once, is idempotent, and compares both counts."""

from datetime import UTC, datetime

import msgspec
import pytest
from support.fakes.apiserver import pod_body
from support.harness.card_settlement import ALLOCATED, node_body
from support.harness.settlement import CLUSTER, RULES

from extender.settlement.hami.hami_card_bookings import HamiBooking, hami_bookings
from extender.settlement.hami.hami_import import ACTOR, HamiImporter
from extender.settlement.node_card_health import NodeRules
from ledger.core.decide.decider import decide
from ledger.core.evolve.evolver import evolve
from ledger.core.model.cards import Part, Phase, Share
from ledger.core.model.denials import Denial
from ledger.core.model.state import State
from ledger.kube.api.objects import ApiNode, Pod
from ledger.kube.hami import annotation_keys
from webhook.settlement.observation_commands import command_for
from webhook.settlement.pod_observation import observe_pod

NOW = 1_800_000_000


class Ledger:
    """Decides on a state of its own."""

    def __init__(self) -> None:
        self.state = State()
        self.actors: set[str] = set()

    async def decide(self, command) -> Denial | None:
        decision = decide(self.state, command)
        if isinstance(decision, Denial):
            return decision
        for event in decision:
            self.actors.add(event.actor)
            evolve(self.state, event, NOW)
        self.state.position += bool(decision)
        return None

    async def make_known(self, pod: Pod) -> Denial | None:
        seen = observe_pod(pod, CLUSTER, RULES, NOW, deleted=False)
        return await self.decide(command_for(seen, "import"))

    async def imports(self, nodes, pods):
        importing = HamiImporter(
            CLUSTER,
            rules=RULES,
            node_rules=NodeRules(),
            state=lambda: self.state,
            decide=self.decide,
            make_known=self.make_known,
        )
        return await importing.take(nodes, pods, datetime.fromtimestamp(NOW, UTC), dry_run=False)


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


def node(name: str, **fields) -> ApiNode:
    body = node_body(name, **fields)
    body["metadata"]["resourceVersion"] = "7"
    return msgspec.convert(body, ApiNode)


def pod(name: str, given: str, on: str = "n1", **more) -> Pod:
    body = pod_body(name)
    body["metadata"] |= {"namespace": "red", "uid": f"uid-{name}", "resourceVersion": "9"}
    body["metadata"]["annotations"] = {annotation_keys.NODE: on, ALLOCATED: given}
    body["spec"]["nodeName"] = on
    return msgspec.convert(body | more, Pod)


async def test_nodes_and_pods_are_imported_once(ledger):
    nodes = [node("n1"), node("plain", text="")]
    pods = [pod("p", "GPU-0,NVIDIA,1000,10:;", status={"phase": "Running"})]
    report = await ledger.imports(nodes, pods)
    assert (report.nodes, report.nodes_known, report.pods, report.pods_known) == (1, 0, 1, 0)
    assert ledger.actors == {ACTOR}
    position = ledger.state.position
    report = await ledger.imports(nodes, pods)
    assert (report.nodes, report.nodes_known, report.pods, report.pods_known) == (0, 1, 0, 1)
    assert ledger.state.position == position
    (card, other) = report.cards
    assert (card.used_memory, card.hami_memory) == (1000, 1000)
    assert (card.used_cores, card.hami_cores, card.used_slots, card.hami_slots) == (10, 10, 1, 1)
    assert (other.used_memory, other.hami_memory) == (0, 0)


async def test_what_is_not_understood_is_named_with_the_reason_and_stops_nothing(ledger):
    nodes = [node("n1"), node("n2", text="[{")]
    pods = [
        pod("broken", "GPU-0,NVIDIA,x,10:;"),
        pod("lost", "GPU-9,NVIDIA,1000,10:;"),
        pod("nowhere", "GPU-0,NVIDIA,1000,10:;", on="n2"),
        pod("p", "GPU-0,NVIDIA,1000,10:;"),
    ]
    report = await ledger.imports(nodes, pods)
    assert report.pods == 1
    assert [(problem.kind, problem.name) for problem in report.problems] == [
        ("node", "n2"),
        ("pod", "red/broken"),
        ("pod", "red/lost"),
        ("pod", "red/nowhere"),
    ]
    assert "GPU-9" in report.problems[2].reason


async def test_pods_that_are_over_or_not_bound_take_nothing(ledger):
    over = pod("over", "GPU-0,NVIDIA,1000,10:;", status={"phase": "Succeeded"})
    waiting = pod("waiting", "GPU-0,NVIDIA,1000,10:;", spec={"containers": [{"name": "main"}]})
    report = await ledger.imports([node("n1")], [over, waiting])
    assert (report.pods, report.problems) == (0, ())
    assert {card.hami_memory for card in report.cards} == {0}


def test_hami_books_the_larger_of_init_and_app_containers():
    share = Share("GPU-0", 1000, 10)
    init = Part("a", Phase.INIT, (Share("GPU-0", 5000, 5),))
    sidecar = Part("b", Phase.SIDECAR, (share,))
    apps = Part("c", Phase.APP, (share,)), Part("d", Phase.APP, (share,))
    assert hami_bookings(apps, initialised=False) == {"GPU-0": HamiBooking(2000, 20, 2)}
    assert hami_bookings((init, *apps), initialised=False) == {"GPU-0": HamiBooking(5000, 20, 2)}
    assert hami_bookings((init, *apps), initialised=True) == {"GPU-0": HamiBooking(2000, 20, 2)}
    assert hami_bookings((sidecar, *apps), initialised=True) == {"GPU-0": HamiBooking(2000, 20, 2)}
    assert hami_bookings((init,), initialised=False) == {"GPU-0": HamiBooking(5000, 5, 1)}
