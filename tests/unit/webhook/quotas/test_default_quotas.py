"""Default quotas: which namespaces get one, and how it changes."""

import asyncio

import pytest
from support.harness.settlement import World, full_world, settling

from ledger.kube.api.api_resources import NAMESPACES, POLICIES
from ledger.kube.api.errors import Forbidden
from webhook.quotas import default_quotas

GPUS = "limits.nvidia.com/gpu"
HARD = {GPUS: "4"}


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(default_quotas, "CREATE_SECONDS", 0.05)
    monkeypatch.setattr(default_quotas, "RETRY_SECONDS", 0.2)


def policy(one: World, **selects) -> None:
    spec = {"defaultQuota": {"name": "given", "hard": HARD}} | selects
    one.server.create(POLICIES.name, "", {"metadata": {"name": "p"}, "spec": spec})


def namespace(one: World, name: str) -> None:
    one.server.create(NAMESPACES.name, "", {"metadata": {"name": name}})


def quotas(one: World) -> set[tuple[str, str]]:
    return {(where, name) for kind, where, name in one.server.objects if kind == "resourcequotas"}


async def test_selected_namespaces_get_the_default_quota():
    async with full_world() as one:
        namespace(one, "red")
        namespace(one, "blue")
        policy(one, namespaces=["red", "green"])
        async with settling(one):
            await one.until(lambda: quotas(one) == {("red", "given")})
            await one.until(lambda: one.limits("given") == {GPUS: 4})
            namespace(one, "green")
            await one.until(lambda: quotas(one) == {("red", "given"), ("green", "given")})


async def test_existing_quota_is_not_changed():
    async with full_world() as one:
        namespace(one, "red")
        body = {"metadata": {"name": "given"}, "spec": {"hard": {GPUS: "1"}}}
        one.server.create("resourcequotas", "red", body)
        policy(one)
        async with settling(one):
            await one.synced()
            await one.until(lambda: one.limits("given") == {GPUS: 1})
            await asyncio.sleep(0.3)  # some rounds, to give a wrong write its chance
            assert [write for write in one.cluster.writes if write[0] == "quota"] == []


async def test_default_quota_is_created_again_when_deleted():
    async with full_world() as one:
        namespace(one, "red")
        policy(one)
        async with settling(one):
            await one.until(lambda: one.limits("given") == {GPUS: 4})
            one.server.delete("resourcequotas", "red", "given")
            await one.until(lambda: not quotas(one))
            await one.until(lambda: quotas(one) == {("red", "given")})


async def test_creation_is_retried_after_a_pause_when_refused():
    async with full_world() as one:
        namespace(one, "red")
        policy(one)
        one.cluster.refusing = Forbidden("the namespace is being terminated")
        async with settling(one):
            await one.synced()
            await asyncio.sleep(0.3)
            one.cluster.refusing = None
            await one.until(lambda: quotas(one) == {("red", "given")})


async def test_default_quota_in_bytes_is_created_as_a_number():
    memory = "limits.nvidia.com/gpumem"
    async with full_world() as one:
        namespace(one, "red")
        policy(one, defaultQuota={"name": "given", "hard": {memory: "16Gi", "pods": "3"}})
        async with settling(one):
            await one.until(lambda: one.limits("given") == {memory: 16_384})
            made = one.server.objects["resourcequotas", "red", "given"]
            assert made["spec"]["hard"] == {memory: "16384", "pods": "3"}
