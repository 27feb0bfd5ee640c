"""Default quotas: which namespaces get one, and how it changes."""

import asyncio

import pytest
from support.harness.settlement import World, full_world, settling

from ledger.kube.api.api_resources import NAMESPACES, POLICIES
from ledger.kube.api.cluster_errors import Forbidden
from webhook.quotas import default_quotas

GPUS = "limits.nvidia.com/gpu"
HARD = {GPUS: "4"}


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(default_quotas, "CREATE_SECONDS", 0.05)
    monkeypatch.setattr(default_quotas, "RETRY_SECONDS", 0.2)


def policy(world: World, **selects) -> None:
    spec = {"defaultQuota": {"name": "given", "hard": HARD}} | selects
    world.server.create(POLICIES.name, "", {"metadata": {"name": "p"}, "spec": spec})


def namespace(world: World, name: str) -> None:
    world.server.create(NAMESPACES.name, "", {"metadata": {"name": name}})


def quotas(world: World) -> set[tuple[str, str]]:
    return {(where, name) for kind, where, name in world.server.objects if kind == "resourcequotas"}


async def test_selected_namespaces_get_the_default_quota():
    async with full_world() as world:
        namespace(world, "red")
        namespace(world, "blue")
        policy(world, namespaces=["red", "green"])
        async with settling(world):
            await world.until(lambda: quotas(world) == {("red", "given")})
            await world.until(lambda: world.limits("given") == {GPUS: 4})
            namespace(world, "green")
            await world.until(lambda: quotas(world) == {("red", "given"), ("green", "given")})


async def test_existing_quota_is_not_changed():
    async with full_world() as world:
        namespace(world, "red")
        body = {"metadata": {"name": "given"}, "spec": {"hard": {GPUS: "1"}}}
        world.server.create("resourcequotas", "red", body)
        policy(world)
        async with settling(world):
            await world.synced()
            await world.until(lambda: world.limits("given") == {GPUS: 1})
            await asyncio.sleep(0.3)  # some rounds, to give a wrong write its chance
            assert [write for write in world.cluster.writes if write[0] == "quota"] == []


async def test_default_quota_is_created_again_when_deleted():
    async with full_world() as world:
        namespace(world, "red")
        policy(world)
        async with settling(world):
            await world.until(lambda: world.limits("given") == {GPUS: 4})
            world.server.delete("resourcequotas", "red", "given")
            await world.until(lambda: not quotas(world))
            await world.until(lambda: quotas(world) == {("red", "given")})


async def test_creation_is_retried_after_a_pause_when_refused():
    async with full_world() as world:
        namespace(world, "red")
        policy(world)
        world.cluster.refusing = Forbidden("the namespace is being terminated")
        async with settling(world):
            await world.synced()
            await asyncio.sleep(0.3)
            world.cluster.refusing = None
            await world.until(lambda: quotas(world) == {("red", "given")})


async def test_default_quota_in_bytes_is_created_as_a_number():
    memory = "limits.nvidia.com/gpumem"
    async with full_world() as world:
        namespace(world, "red")
        policy(world, defaultQuota={"name": "given", "hard": {memory: "16Gi", "pods": "3"}})
        async with settling(world):
            await world.until(lambda: world.limits("given") == {memory: 16_384})
            made = world.server.objects["resourcequotas", "red", "given"]
            assert made["spec"]["hard"] == {memory: "16384", "pods": "3"}
