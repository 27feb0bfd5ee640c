"""The oracle of the end-to-end tests comes to what was worked out by hand."""

from collections import Counter
from copy import deepcopy
from typing import Final

import pytest
from support.builders.kind_objects import Case, all_cases
from support.oracles.cluster_oracle import demand_of
from support.oracles.kind_oracle import ENVELOPES, is_finished

from webhook.kinds.kind_schema import WorkloadKind

CASES: Final = [
    (kind, case)
    for kind, case in all_cases()
    if kind.kind in ENVELOPES and kind.group != "batch.volcano.sh"
    # The oracle has the surge of Deployments only, and no autoscaling.
    if not case.options or (kind.kind == "Deployment" and "elastic_max" not in case.options)
]


@pytest.mark.parametrize(
    ("kind", "case"), CASES, ids=[f"{kind.name}: {case.name}" for kind, case in CASES]
)
def test_the_oracle_of_the_cluster_agrees_with_the_examples(kind: WorkloadKind, case: Case) -> None:
    manifest = deepcopy(case.object)
    manifest.setdefault("metadata", {}).setdefault("generation", 1)
    total: Counter[str] = Counter()
    reserve = case.options.get("surge") == "reserve"
    for template, count in ENVELOPES[kind.kind](manifest, reserve=reserve):
        for resource, amount in demand_of(template).items():
            total[resource] += count * amount
    assert is_finished(kind.kind, manifest) == case.finished
    assert case.finished or dict(+total) == case.demand
