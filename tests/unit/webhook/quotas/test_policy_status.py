"""LedgerPolicy status: conditions, the number of namespaces, and how often it is written."""

import asyncio
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs
from support.harness.settlement import World, full_world, session_of, settling

from ledger.kube.api.api_resources import NAMESPACES, POLICIES, UNIVERSE_QUOTAS
from ledger.kube.api.cluster_errors import VersionConflict
from ledger.kube.api.cluster_ports import Changed, Listed
from ledger.kube.api.objects import Workload
from webhook.quotas import changed_statuses, policy_status, universe_quota_status
from webhook.quotas.policy_status import PolicyStatusWriter


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(policy_status, "WRITE_SECONDS", 0.05)
    monkeypatch.setattr(universe_quota_status, "WRITE_SECONDS", 0.05)
    monkeypatch.setattr(changed_statuses, "RETRY_SECONDS", 0.1)


def namespace(world: World, name: str, **labels: str) -> None:
    world.server.create(NAMESPACES.name, "", {"metadata": {"name": name, "labels": labels}})


def policy(world: World, name: str, **spec: Any) -> None:
    body = {"metadata": {"name": name, "generation": 1}, "spec": spec}
    world.server.create(POLICIES.name, "", body)


def change(world: World, name: str, generation: int, **spec: Any) -> None:
    meta = {"generation": generation}
    world.server.update(POLICIES.name, "", name, spec=spec, metadata=meta)


def status(world: World, name: str) -> dict[str, Any]:
    return world.server.objects[POLICIES.name, "", name].get("status", {})


def ready(world: World, name: str) -> dict[str, Any]:
    return (status(world, name).get("conditions") or [{}])[0]


def reason(world: World, name: str) -> tuple[str, str, int]:
    """Return status and reason of Ready, and the number of namespaces; -1 without a status."""
    condition = ready(world, name)
    return (
        condition.get("status", ""),
        condition.get("reason", ""),
        status(world, name).get("namespaces", -1),
    )


def writes(world: World, resource: str = POLICIES.plural) -> list[str]:
    return [write[2] for write in world.cluster.writes if write[:2] == ("status", resource)]


async def test_applied_policy_is_ready_with_its_namespaces():
    async with full_world() as world:
        for name in ("red", "blue", "other"):
            namespace(world, name)
        policy(world, "p", namespaces=["red", "blue"])
        async with settling(world):
            await world.until(lambda: reason(world, "p") == ("True", "Applied", 2))
            assert ready(world, "p")["type"] == "Ready"
            assert ready(world, "p")["observedGeneration"] == 1
            assert ready(world, "p")["message"] == "It applies to 2 namespaces."


async def test_count_follows_namespaces_and_their_labels():
    async with full_world() as world:
        policy(world, "p", namespaceSelector={"matchLabels": {"env": "prod"}})
        async with settling(world):
            await world.until(lambda: reason(world, "p") == ("True", "NoNamespaces", 0))
            namespace(world, "red", env="prod")
            await world.until(lambda: reason(world, "p") == ("True", "Applied", 1))
            world.server.update(NAMESPACES.name, "", "red", metadata={"labels": {}})
            await world.until(lambda: reason(world, "p") == ("True", "NoNamespaces", 0))


async def test_count_has_a_namespace_that_a_review_read_first():
    async with full_world() as world, session_of(world) as session:
        policy(world, "p")
        stored = msgspec.convert(world.server.objects[POLICIES.name, "", "p"], Workload)
        context = world.context
        context.policies.take(Listed(1, [stored]))
        context.namespaces.take(Listed(1, []))
        writer = PolicyStatusWriter(session)
        await writer.write()
        assert reason(world, "p") == ("True", "NoNamespaces", 0)
        namespace(world, "red")
        assert await context.namespaces.read("red", asyncio.get_running_loop().time() + 5)
        await writer.write()
        assert reason(world, "p") == ("True", "Applied", 1)


async def test_nothing_is_written_before_the_namespaces_are_listed():
    async with full_world() as world, session_of(world) as session:
        policy(world, "p")
        stored = msgspec.convert(world.server.objects[POLICIES.name, "", "p"], Workload)
        world.context.policies.take(Listed(1, [stored]))
        await PolicyStatusWriter(session).write()
        assert world.cluster.writes == []


async def test_shadowed_policy_names_the_one_with_precedence():
    async with full_world() as world:
        namespace(world, "red")
        policy(world, "low", priority=1)
        policy(world, "high", priority=7, namespaces=["red"])
        async with settling(world):
            await world.until(lambda: reason(world, "low") == ("False", "Shadowed", 0))
            assert reason(world, "high") == ("True", "Applied", 1)
            assert "high (spec.priority 7) in red" in ready(world, "low")["message"]
            namespace(world, "blue")
            await world.until(lambda: reason(world, "low") == ("True", "Applied", 1))


async def test_invalid_policy_names_the_field_and_what_applies():
    async with full_world() as world:
        namespace(world, "red")
        policy(world, "p", mode="warn")
        policy(world, "q", mode="perhaps", priority=9)
        async with settling(world):
            await world.until(lambda: reason(world, "q") == ("False", "Invalid", 0))
            await world.until(lambda: reason(world, "p") == ("True", "Applied", 1))
            assert "`spec.mode`" in ready(world, "q")["message"]
            assert "until then it applies to no namespace." in ready(world, "q")["message"]
            change(world, "p", 2, priority="high")
            await world.until(lambda: reason(world, "p") == ("False", "Invalid", 1))
            assert ready(world, "p")["observedGeneration"] == 2
            assert "`spec.priority`" in ready(world, "p")["message"]
            assert "the last valid spec of this policy applies" in ready(world, "p")["message"]
            change(world, "p", 3, priority=3)
            await world.until(lambda: reason(world, "p") == ("True", "Applied", 1))


async def test_status_is_written_once_while_nothing_changes():
    async with full_world() as world:
        namespace(world, "red")
        policy(world, "p")
        async with settling(world):
            await world.until(lambda: reason(world, "p") == ("True", "Applied", 1))
            await asyncio.sleep(0.3)  # some rounds, to give a needless write its chance
            assert writes(world) == ["p"]
        world.now += 60_000_000
        async with settling(world):  # the next active replica
            await world.synced()
            await asyncio.sleep(0.3)
            assert writes(world) == ["p"]
            change(world, "p", 2, mode="warn")
            await world.until(lambda: ready(world, "p").get("observedGeneration") == 2)
            assert writes(world) == ["p", "p"]


async def test_policy_that_is_made_again_gets_its_status():
    async with full_world() as world:
        namespace(world, "red")
        policy(world, "p")
        async with settling(world):
            await world.until(lambda: reason(world, "p") == ("True", "Applied", 1))
            world.server.delete(POLICIES.name, "", "p")
            policy(world, "p")
            await world.until(lambda: reason(world, "p") == ("True", "Applied", 1))


async def test_status_is_retried_after_a_pause_when_in_conflict(monkeypatch):
    monkeypatch.setattr(changed_statuses, "RETRY_SECONDS", 0.4)
    async with full_world() as world:
        namespace(world, "red")
        policy(world, "p")
        world.cluster.refusing = VersionConflict("the object has been modified")
        with capture_logs() as logs:
            async with settling(world):
                await world.synced()
                await asyncio.sleep(0.3)  # some rounds within the pause
                world.cluster.refusing = None
                await world.until(lambda: reason(world, "p") == ("True", "Applied", 1))
        refusals = [entry for entry in logs if entry["event"] == "object_status_not_written"]
        assert [entry["key"] for entry in refusals] == ["ledgerpolicies/p"]


@pytest.mark.parametrize("resource", [POLICIES, UNIVERSE_QUOTAS])
async def test_definition_without_status_is_logged_once(monkeypatch, resource):
    monkeypatch.setattr(changed_statuses, "UNDEFINED_SECONDS", 0.5)
    async with full_world() as world:
        namespace(world, "red")
        for name in ("p", "q"):
            body = {"metadata": {"name": name, "generation": 1}, "spec": {"hard": {"cpu": "1"}}}
            world.server.create(resource.name, "", body)
        world.cluster.without_status = {resource}
        with capture_logs() as logs:
            async with settling(world):
                await world.until(lambda: len(writes(world, resource.plural)) == 1)
                await asyncio.sleep(0.25)  # some rounds within the pause
                assert len(writes(world, resource.plural)) == 1
                await world.until(lambda: len(writes(world, resource.plural)) == 2)
                reported = [entry for entry in logs if entry["event"] == "status_not_defined"]
                assert len(reported) == 1
                assert f"apply deploy/crds/{resource.plural}.yaml" in reported[0]["reason"]
                world.cluster.without_status = set()
                stored = (resource.name, "", "q")
                await world.until(lambda: "status" in world.server.objects[stored])
        assert len([entry for entry in logs if entry["event"] == "status_not_defined"]) == 1


async def test_own_status_writes_do_not_select_again():
    async with full_world() as world:
        policies = world.context.policies
        policy(world, "p")
        body = world.server.objects[POLICIES.name, "", "p"]
        policies.take(Listed(1, [msgspec.convert(body, Workload)]))
        before = policies.revision
        body["status"] = {"namespaces": 1}
        policies.take(Changed(2, msgspec.convert(body, Workload)))
        assert policies.revision == before
        assert policies.existing["p"].status == {"namespaces": 1}
        body["spec"] = {"mode": "warn"}
        policies.take(Changed(3, msgspec.convert(body, Workload)))
        assert policies.revision > before
