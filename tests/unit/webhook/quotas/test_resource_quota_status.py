"""The status of ResourceQuotas: its amounts, the times of its writes, and conflicts."""

import asyncio

import msgspec
import pytest
from support.fakes.apiserver import pod_body
from support.harness.settlement import RULES, World, full_world, settling

from ledger.kube.api.cluster_errors import ClusterUnavailable, VersionConflict
from ledger.kube.quotas import hard_limits
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.vendors.vendors import NVIDIA
from webhook.quotas import resource_quota_status

GPUS = "limits.nvidia.com/gpu"
MEMORY = "limits.nvidia.com/gpumem"
NATIVE = "requests.nvidia.com/gpu"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(resource_quota_status, "WRITE_SECONDS", 0.05)
    monkeypatch.setattr(resource_quota_status, "RETRY_SECONDS", 0.1)


def quota(world: World, name: str = "q", **hard: str) -> None:
    body = {"metadata": {"name": name}, "spec": {"hard": hard}, "status": {"used": {NATIVE: "7"}}}
    world.server.create("resourcequotas", "red", body)


def used(world: World, name: str = "q") -> dict:
    return world.server.objects["resourcequotas", "red", name]["status"]["used"]


def outcomes(world: World, resource: str = "resourcequotas") -> dict[str, int]:
    """Return how often statuses were written, by outcome."""
    name = "status_writes_total"
    return {key[2]: many for key, many in world.counted.items() if key[:2] == (name, resource)}


async def test_status_has_the_amounts_of_keys_that_kubernetes_ignores():
    async with full_world() as world, settling(world):
        await world.synced()
        quota(world, **{GPUS: "4", MEMORY: "8000", NATIVE: "9"})
        await world.until(lambda: used(world) == {NATIVE: "7", GPUS: "0", MEMORY: "0"})
        world.server.create("pods", "red", pod_body("p"))
        await world.until(lambda: used(world) == {NATIVE: "7", GPUS: "1", MEMORY: "1000"})
        world.server.delete("pods", "red", "p")
        await world.until(lambda: used(world)[GPUS] == "0")


async def test_status_is_not_written_while_nothing_changes():
    async with full_world() as world, settling(world):
        await world.synced()
        quota(world, **{GPUS: "4", MEMORY: "64000"})
        await world.until(lambda: GPUS in used(world))
        world.server.update("resourcequotas", "red", "q", status={"used": {GPUS: 0, MEMORY: "0k"}})
        await asyncio.sleep(0.3)  # some rounds, to give a needless write its chance
        assert len(world.cluster.writes) == 1


async def test_status_is_not_written_without_the_setting():
    async with full_world(write_quota_status=False) as world, settling(world):
        await world.synced()
        quota(world, **{GPUS: "4"})
        world.server.create("pods", "red", pod_body("p"))
        await world.until(lambda: world.entry("p") is not None)
        await asyncio.sleep(0.2)
        assert world.cluster.writes == []


async def test_conflict_on_a_quota_does_not_delay_the_others():
    async with full_world() as world, settling(world):
        await world.synced()
        honest, conflicts = world.cluster.patch_quota_status, list[str]()

        async def conflicting(namespace, name, used, version):
            if name == "q" and len(conflicts) < 100:
                conflicts.append(version)
                raise VersionConflict("another writer was first")
            await honest(namespace, name, used, version)

        world.cluster.patch_quota_status = conflicting
        quota(world, **{GPUS: "4"})
        quota(world, "r", **{GPUS: "4"})
        await world.until(lambda: used(world, "r").get(GPUS) == "0")
        assert 0 < len(conflicts) < 100
        assert outcomes(world) == {"conflict": len(conflicts), "done": 1}
        conflicts += [""] * 100
        await world.until(lambda: used(world).get(GPUS) == "0")


async def test_write_is_retried_after_a_pause_when_it_failed():
    async with full_world() as world, settling(world):
        await world.synced()
        world.cluster.refusing = ClusterUnavailable("the API server is down")
        quota(world, **{GPUS: "4"})
        await world.until(lambda: world.limits("q") == {GPUS: 4})
        await asyncio.sleep(0.2)
        assert GPUS not in used(world)
        assert outcomes(world)["failed"] >= 1
        world.cluster.refusing = None
        await world.until(lambda: used(world).get(GPUS) == "0")


@pytest.mark.parametrize(
    ("key", "amount", "shown"),
    [
        (GPUS, 3, "3"),
        (MEMORY, 1024, "2"),
        (MEMORY, 1025, "3"),
        ("limits.cpu", 1500, "1500m"),
        ("limits.cpu", 2000, "2"),
        ("limits.memory", 4096, "4096"),
        ("limits.example.com/unknown", 5, "5"),
    ],
)
def test_amounts_are_written_in_the_unit_of_their_key(key, amount, shown):
    vendor = msgspec.structs.replace(NVIDIA, memory_factor=512)
    rules = DemandRules(vendors=(vendor,), managed=("cpu", "memory"))
    assert hard_limits.quantity(key, amount, rules) == shown


def test_written_limit_is_read_as_the_same_limit():
    limits = hard_limits.read({MEMORY: "64k"}, RULES, pytest.fail, zero_is_unlimited=False)
    assert hard_limits.quantity(MEMORY, limits[MEMORY], RULES) == "64000"
