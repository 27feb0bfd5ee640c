"""HAMi's questions about quotas, asked of the webhook over HTTP with values of our own."""

from typing import Any

import pytest
from support.builders.admission_reviews import CLUSTER, NAMESPACE, CoreLedger, review, serving

from ledger.core.decide.decider import decide
from ledger.core.evolve.evolver import evolve
from ledger.core.model import accounts
from ledger.core.model.commands import SetLimits
from ledger.core.model.denials import Denial
from ledger.kube.api.objects import Quantities
from ledger.kube.quotas import hard_limits
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.vendors.vendors import select_vendors

RULES = DemandRules(vendors=select_vendors(["nvidia", "cambricon", "ascend", "amd"]))
NVIDIA, MLU = "nvidia.com/", "cambricon.com/"
ASCEND = "huawei.com/Ascend310P"
MEMORY, CORES = "limits.nvidia.com/gpumem", "limits.nvidia.com/gpucores"
SIZED, SHARED = "limits.cambricon.com/mlu.smlu.vmemory", "limits.cambricon.com/mlu.smlu.vcore"


def gpus(count: int, memory: int, cores: int = 0, **more: Any) -> dict[str, Any]:
    limits = {"gpu": count, "gpumem": memory, "gpucores": cores}
    return {
        "resources": {"limits": {NVIDIA + key: str(amount) for key, amount in limits.items()}},
        **more,
    }


def mlus(count: int, memory: int, cores: int = 1) -> dict[str, Any]:
    limits = {"vmlu": count, "mlu.smlu.vmemory": memory, "mlu.smlu.vcore": cores}
    return {"resources": {"limits": {MLU + key: str(amount) for key, amount in limits.items()}}}


def npus(count: int, memory: int) -> dict[str, Any]:
    return {"resources": {"limits": {ASCEND: str(count), f"{ASCEND}-memory": str(memory)}}}


def ledger(limits: Quantities) -> CoreLedger:
    """Return a ledger in which one quota limits the namespace, in the units of its keys."""
    limited, warnings = CoreLedger(), list[str]()
    read = hard_limits.read(limits, RULES, warnings.append, zero_is_unlimited=False)
    assert not warnings
    account = accounts.quota(CLUSTER, "team", "gpu")
    decision = decide(limited.state, SetLimits(account, (NAMESPACE,), read))
    assert not isinstance(decision, Denial)
    for event in decision:
        evolve(limited.state, event, 1)
    return limited


@pytest.mark.parametrize(
    ("limits", "init", "apps", "fits"),
    [
        ({MEMORY: "2k"}, [], [gpus(1, 2_000)], True),
        ({MEMORY: "2k"}, [], [gpus(1, 2_001)], False),
        ({MEMORY: "2k"}, [], [gpus(2, 1_000)], True),
        ({MEMORY: "2k"}, [], [gpus(2, 1_001)], False),
        ({MEMORY: "2k"}, [], [gpus(1, 1_000), gpus(1, 1_001)], False),
        ({CORES: "100"}, [], [gpus(2, 10, 50)], True),
        ({CORES: "100"}, [], [gpus(2, 10, 51)], False),
        ({CORES: "99"}, [], [gpus(1, 0, 100)], False),
        ({MEMORY: "0"}, [], [gpus(1, 1)], False),
        ({CORES: "0"}, [], [gpus(1, 5_000)], True),
        ({}, [], [gpus(8, 80_000, 100)], True),
        ({MEMORY: "2k"}, [gpus(1, 1_500), gpus(1, 2_000)], [gpus(1, 500)], True),
        ({MEMORY: "2k"}, [gpus(1, 2_001)], [gpus(1, 500)], False),
        ({MEMORY: "2k"}, [gpus(2, 1_001)], [{}], False),
        ({MEMORY: "2k"}, [gpus(1, 1_500)] * 3, [gpus(1, 1_000), gpus(1, 1_000)], True),
        ({MEMORY: "2k"}, [gpus(1, 1_500, restartPolicy="Always")], [gpus(1, 501)], False),
        ({MEMORY: "2k"}, [gpus(1, 1_500, restartPolicy="Always")], [gpus(1, 500)], True),
        ({SIZED: "60"}, [], [mlus(1, 60)], True),
        ({SIZED: "60"}, [], [mlus(2, 40)], False),
        ({SHARED: "50"}, [], [mlus(1, 1, 51)], False),
        ({MEMORY: "1"}, [], [mlus(4, 100)], True),
        ({f"limits.{ASCEND}-memory": "9000"}, [], [npus(1, 2_000)], True),
        ({f"limits.{ASCEND}-memory": "2500"}, [], [npus(1, 2_000)], False),
    ],
)
async def test_a_pod_fits_a_quota_or_is_refused(
    limits: Quantities, init: list[Any], apps: list[Any], fits: bool
) -> None:
    named = [{"name": f"c{number}", **container} for number, container in enumerate(apps)]
    first = [{"name": f"i{number}", **container} for number, container in enumerate(init)]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "team", "uid": "u-1"},
        "spec": {"containers": named, "initContainers": first},
    }
    async with serving(ledger(limits), rules=RULES) as service:
        answer = await service.post(review(pod))
    assert answer["allowed"] is fits, answer
    assert fits or answer["status"]["details"]["causes"][0]["field"].startswith("limits.")


async def test_pods_add_up() -> None:
    charged = ledger({MEMORY: "10000"})
    async with serving(charged, rules=RULES) as service:
        for number, fits in enumerate([True, True, False]):
            pod = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": f"p{number}", "namespace": "team", "uid": f"u-{number}"},
                "spec": {"containers": [{"name": "main", **gpus(2, 2_500)}]},
            }
            assert (await service.post(review(pod)))["allowed"] is fits
    assert charged.used()[MEMORY] == 10_000
