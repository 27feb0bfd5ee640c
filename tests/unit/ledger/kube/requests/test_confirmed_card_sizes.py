"""How large the cards of a cluster are, and what whole cards and percentages come to by that."""

from typing import Any

import msgspec
import pytest

from ledger.core.decide.decider import decide
from ledger.core.evolve.evolver import evolve
from ledger.core.model.cards import Card
from ledger.core.model.commands import AnyCommand, RegisterCards, RemoveNode
from ledger.core.model.denials import Denial
from ledger.core.model.state import State
from ledger.kube.api.objects import Pod
from ledger.kube.requests.confirmed_card_sizes import CARD_MEMORY_MAX, CardSizes
from ledger.kube.requests.demand_rules import CardSize, DemandRules
from ledger.kube.requests.gpu_type_annotation import CardType
from ledger.kube.requests.pod_demand import Demand, demand_of
from ledger.kube.vendors.vendors import NVIDIA, select_vendors
from ledger.log.records import Item, Record

GPU, MEMORY = "nvidia.com/gpu", "nvidia.com/gpumem"
PERCENTAGE = "nvidia.com/gpumem-percentage"
SMALL = Card("s", 0, "NVIDIA T4", 16_000, 100, 10)
LARGE = Card("l", 1, "NVIDIA A100", 81_920, 100, 10)
SIZES = (CardSize("nvidia", "NVIDIA A100", 81_920), CardSize("nvidia", "NVIDIA T4", 16_000))
KNOWN = DemandRules(sizes=SIZES)


class Log:
    """A view of a state, which passes every record to its subscribers."""

    def __init__(self) -> None:
        self.state = State()
        self.told: list[Any] = []

    def subscribe(self, callback: Any) -> None:
        self.told.append(callback)

    def do(self, command: AnyCommand) -> None:
        decided = decide(self.state, command)
        assert not isinstance(decided, Denial)
        items = [Item(event, evolve(self.state, event, 1)) for event in decided]
        for callback in self.told:
            callback(Record(1, 1, "w", "n", b"", 1, items))


def asked(
    limits: dict[str, Any], rules: DemandRules = KNOWN, annotations: dict[str, str] | None = None
) -> Demand:
    containers = [{"name": "main", "resources": {"limits": limits}}]
    body = {"metadata": {"annotations": annotations}, "spec": {"containers": containers}}
    demand = demand_of(msgspec.convert(body, Pod), rules)
    assert isinstance(demand, Demand), demand
    return demand


def test_card_sizes_are_the_largest_of_each_type_in_the_cluster() -> None:
    log = Log()
    other = msgspec.structs.replace(SMALL, uuid="s2", memory=15_000)
    for node in ("east/n1", "east/n2"):
        log.do(RegisterCards(node, "hami", (SMALL, LARGE, other)))
    log.do(RegisterCards("east-2/n1", "hami", (Card("x", 0, "NVIDIA H200", 143_000, 100, 10),)))
    assert CardSizes(log, "east", rules=DemandRules()).rules() == KNOWN


def test_whole_cards_and_percentages_are_of_the_largest_card_there_is() -> None:
    whole = asked({GPU: "2"})
    assert (whole.amounts[MEMORY], whole.assumed, whole.unknown) == (163_840, (MEMORY,), "")
    assert asked({PERCENTAGE: "10"}).amounts[MEMORY] == 8192
    assert asked({MEMORY: "10"}).assumed == ()


@pytest.mark.parametrize(
    "annotations",
    [
        {"nvidia.com/use-gputype": "t4"},
        {"nvidia.com/nouse-gputype": "a100,h100"},
    ],
)
def test_only_cards_that_the_pod_accepts_are_looked_at(annotations: dict[str, str]) -> None:
    assert asked({GPU: "1"}, annotations=annotations).amounts[MEMORY] == 16_000


def test_who_accepts_no_card_that_there_is_may_come_to_run_on_any() -> None:
    assert (
        asked({GPU: "1"}, annotations={"nvidia.com/use-gputype": "H200"}).amounts[MEMORY] == 81_920
    )


def test_without_a_card_of_the_vendor_the_size_is_not_known() -> None:
    rules = DemandRules(vendors=select_vendors(["nvidia", "hygon"]), sizes=SIZES)
    demand = asked({"hygon.com/dcunum": 1}, rules)
    assert (demand.unknown, demand.assumed) == ("hygon.com/dcumem", ())


def test_the_setting_a_vendor_and_a_type_go_before_what_there_is() -> None:
    setting = msgspec.structs.replace(KNOWN, worst_card_memory=100)
    assert asked({GPU: "1"}, setting) == asked({GPU: "1"}, DemandRules(worst_card_memory=100))
    vendor = msgspec.structs.replace(NVIDIA, card_memory=200)
    demand = asked({GPU: "1"}, msgspec.structs.replace(KNOWN, vendors=(vendor,)))
    assert (demand.amounts[MEMORY], demand.assumed) == (200, ())
    typed = msgspec.structs.replace(KNOWN, types=(CardType("t4", 300), CardType("a100")))
    demand = asked({GPU: "1"}, typed, {"nvidia.com/use-gputype": "t4"})
    assert (demand.amounts[MEMORY], demand.assumed) == (300, ())
    demand = asked({GPU: "1"}, typed, {"nvidia.com/use-gputype": "a100"})
    assert set(demand.assumed) == {MEMORY, f"a100.{MEMORY}"}


def test_the_rules_follow_what_nodes_announce() -> None:
    log = Log()
    sizes = CardSizes(log, "east", rules=DemandRules())
    assert sizes.rules() == DemandRules()
    for node in ("east/n1", "east/n2"):
        log.do(RegisterCards(node, "hami", (SMALL,)))
    assert sizes.rules().sizes == SIZES[1:]
    for node in ("east/n3", "east/n4", "east/n5"):
        log.do(RegisterCards(node, "hami", (LARGE,)))
    log.do(RegisterCards("east/n3", "hami", ()))
    assert sizes.rules() == KNOWN
    assert sizes.rules() is sizes.rules()
    log.do(RemoveNode("east/n4"))
    assert sizes.rules().largest == {"nvidia": 16_000}
    log.do(RemoveNode("east/n5"))
    assert sizes.rules().sizes == SIZES[1:]


HUGE = 2**31 - 1


@pytest.mark.parametrize("forged", ["NVIDIA A100", "NVIDIA T4", "new", "NVIDIA A100 T4"])
@pytest.mark.parametrize("scale", [1, 10])
def test_one_node_alone_makes_no_whole_card_dearer(forged: str, scale: int) -> None:
    log = Log()
    sizes = CardSizes(log, "east", rules=DemandRules())
    for node in ("east/n1", "east/n2"):
        log.do(RegisterCards(node, "hami", (SMALL, LARGE)))
    cards = (
        Card("f", 0, forged, HUGE, 100, 10),
        Card("g", 1, forged, LARGE.memory * scale, 100, 10, memory_scale=100 * scale),
    )
    log.do(RegisterCards("east/forger", "gpuledger", cards))
    rules = sizes.rules()
    assert asked({GPU: "1"}, rules).amounts[MEMORY] == 81_920
    assert asked({PERCENTAGE: "10"}, rules).amounts[MEMORY] == 8192
    small = asked({GPU: "1"}, rules, {"nvidia.com/use-gputype": "T4"})
    assert small.amounts[MEMORY] == 16_000
    [doubt, *_] = sizes.doubts()
    assert doubt.startswith(f"node forger announces '{forged}' of {HUGE} MiB")
    log.do(RemoveNode("east/forger"))
    assert sizes.doubts() == []


def test_type_of_one_node_counts_when_another_node_has_a_larger_card() -> None:
    log = Log()
    sizes = CardSizes(log, "east", rules=DemandRules())
    log.do(RegisterCards("east/n1", "hami", (SMALL,)))
    log.do(RegisterCards("east/n2", "hami", (LARGE,)))
    log.do(RegisterCards("east/n3", "hami", (LARGE,)))
    small = asked({GPU: "1"}, sizes.rules(), {"nvidia.com/use-gputype": "T4"})
    assert small.amounts[MEMORY] == 16_000


def test_size_of_a_vendors_only_node_counts_up_to_the_maximum() -> None:
    log = Log()
    log.do(RegisterCards("east/n1", "hami", (LARGE,)))
    assert (
        asked({GPU: "1"}, CardSizes(log, "east", rules=DemandRules()).rules()).amounts[MEMORY]
        == 81_920
    )
    log.do(RegisterCards("east/n1", "hami", (Card("f", 0, "NVIDIA A100", HUGE, 100, 10),)))
    log.do(RegisterCards("east/n2", "hami", (Card("g", 0, "NVIDIA A100", HUGE, 100, 10),)))
    for most in (CARD_MEMORY_MAX, 100_000):
        rules = CardSizes(log, "east", rules=DemandRules(), card_memory_max=most).rules()
        assert asked({GPU: "1"}, rules).amounts[MEMORY] == most


def test_card_sizes_are_read_again_when_the_state_is_replaced() -> None:
    log = Log()
    sizes = CardSizes(log, "east", rules=DemandRules())
    log.do(RegisterCards("east/n1", "hami", (SMALL,)))
    assert sizes.rules().sizes
    log.state = State()
    assert not sizes.rules().sizes


def test_card_sizes_are_ignored_when_worst_card_memory_is_set() -> None:
    log = Log()
    rules = DemandRules(worst_card_memory=100)
    sizes = CardSizes(log, "east", rules=rules)
    log.do(RegisterCards("east/n1", "hami", (SMALL,)))
    assert sizes.rules() is rules
