"""The charge of a pod whose extended resources a resource claim serves."""

import msgspec

from ledger.kube.api.objects import Pod
from ledger.kube.requests.demand import Demand
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.requests.gpu_type_annotation import CardType
from ledger.kube.requests.pod_demand import demand_of
from webhook.context.resource_claims.extended_resources import (
    NOT_SERVED,
    ServedResources,
    with_served,
)

GPU, MEMORY = "nvidia.com/gpu", "nvidia.com/gpumem"
RULES = DemandRules(worst_card_memory=80_000, managed=(GPU, "cpu"))


def pod(**limits: str) -> Pod:
    body = {"spec": {"containers": [{"name": "main", "resources": {"limits": limits}}]}}
    return msgspec.convert(body, Pod)


def served(name: str, **amounts: int) -> ServedResources:
    return ServedResources(frozenset([name]), amounts)


def test_served_resources_replace_those_of_containers():
    asked = pod(**{GPU: "1", "cpu": "2"})
    demand = demand_of(asked, RULES)
    assert isinstance(demand, Demand)
    assert demand.amounts[MEMORY] == 80_000
    given = with_served(asked, demand, RULES, served(GPU, **{GPU: 1, MEMORY: 40_960}))
    others = {name: amount for name, amount in demand.amounts.items() if "cpu" in name}
    assert others
    assert given.amounts == {**others, GPU: 1, MEMORY: 40_960}
    assert MEMORY not in given.assumed


def test_other_claims_of_the_pod_stay_when_resources_are_served():
    asked = pod(**{GPU: "1"})
    demand = demand_of(asked, RULES)
    assert isinstance(demand, Demand)
    more = msgspec.structs.replace(demand, amounts={**demand.amounts, GPU: 3, MEMORY: 80_512})
    given = with_served(asked, more, RULES, served(GPU, **{GPU: 1, MEMORY: 40_960}))
    assert given.amounts == {GPU: 3, MEMORY: 41_472}


def test_typed_resources_are_replaced_with_their_cards():
    rules = DemandRules(worst_card_memory=80_000, types=(CardType("h100", 80_000),))
    asked = msgspec.convert(
        {
            "metadata": {"annotations": {"nvidia.com/use-gputype": "h100"}},
            "spec": {"containers": [{"name": "m", "resources": {"limits": {GPU: "1"}}}]},
        },
        Pod,
    )
    demand = demand_of(asked, rules)
    assert isinstance(demand, Demand)
    assert f"h100.{MEMORY}" in demand.amounts
    given = with_served(asked, demand, rules, served(GPU, **{GPU: 1, MEMORY: 40_960}))
    assert given.amounts == {GPU: 1, MEMORY: 40_960}


def test_demand_stays_when_no_claim_serves_the_pod():
    asked = pod(**{GPU: "1"})
    demand = demand_of(asked, RULES)
    assert isinstance(demand, Demand)
    assert with_served(asked, demand, RULES, NOT_SERVED) is demand


def test_served_resource_that_no_container_is_charged_for_is_added():
    asked = pod(**{GPU: "1"})
    demand = demand_of(asked, RULES)
    assert isinstance(demand, Demand)
    by_class = served("deviceclass.resource.kubernetes.io/h100", **{GPU: 7})
    assert with_served(asked, demand, RULES, by_class).amounts == {**demand.amounts, GPU: 8}
