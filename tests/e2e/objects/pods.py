"""Pods of the tests, and their expected usage in the ledger."""

import datetime
from collections import Counter
from typing import Any, Final

from tests.e2e.harness.cluster import Manifest

CARDS: Final = "nvidia.com/gpu"
MEMORY: Final = "nvidia.com/gpumem"
CORES: Final = "nvidia.com/gpucores"

_SUFFIXES: Final = {"k": 1_000, "M": 1_000_000}
_FINISHED: Final = ("Succeeded", "Failed")


def pod(
    name: str,
    *,
    cards: int = 1,
    memory: int = 1_000,
    cores: int = 10,
    generate: bool = False,
    labels: dict[str, str] | None = None,
    **metadata: Any,
) -> Manifest:
    """Return a pod of one container: `memory` MiB and `cores` percent on each of its cards.

    With `generate` the name is a prefix and the API server completes it.
    """
    wanted = {CARDS: str(cards), MEMORY: str(memory), CORES: str(cores)}
    named = {"generateName": f"{name}-"} if generate else {"name": name}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**named, "labels": labels or {}, **metadata},
        "spec": {
            "containers": [
                {"name": "main", "image": "cuda:12", "resources": {"limits": wanted}},
            ]
        },
    }


def demands(listed: list[Manifest]) -> dict[str, dict[str, int]]:
    """Return the usage of each counting pod, by ledger key, from the stored objects."""
    return {
        f"pods/{stored['metadata']['name']}": demand
        for stored in filter(_counts, listed)
        if (demand := _demand(stored))
    }


def total(used: dict[str, dict[str, int]]) -> dict[str, int]:
    """Sum the usage of keys, by resource; unused resources are there with 0."""
    return {
        resource: sum(demand.get(resource, 0) for demand in used.values())
        for resource in (CARDS, MEMORY, CORES)
    }


def _demand(stored: Manifest) -> dict[str, int]:
    amounts: Counter[str] = Counter()
    for container in stored["spec"]["containers"]:
        limits = container.get("resources", {}).get("limits", {})
        cards = _integer(limits.get(CARDS, "0"))
        amounts[CARDS] += cards
        amounts[MEMORY] += cards * _integer(limits.get(MEMORY, "0"))
        amounts[CORES] += cards * _integer(limits.get(CORES, "0"))
    return {resource: amount for resource, amount in amounts.items() if amount}


def _counts(stored: Manifest) -> bool:
    """Apply Kubernetes' own rule: finished pods and those past their grace no longer count."""
    if stored.get("status", {}).get("phase") in _FINISHED:
        return False
    metadata = stored["metadata"]
    if "deletionTimestamp" not in metadata:
        return True
    deleted = datetime.datetime.fromisoformat(metadata["deletionTimestamp"])
    grace = datetime.timedelta(seconds=metadata.get("deletionGracePeriodSeconds", 0))
    return datetime.datetime.now(datetime.UTC) < deleted + grace


def _integer(quantity: str) -> int:
    """Read a quantity as the API server writes whole numbers: `8000` comes back as `8k`."""
    factor = _SUFFIXES.get(quantity[-1])
    return int(quantity) if factor is None else int(quantity[:-1]) * factor
