"""Labels of objects: those by which quotas select are recorded and charged."""

from typing import Any

from support.fakes.apiserver import pod_body
from support.fakes.full_cluster import DEPLOYMENTS, reference, template, workload
from support.harness.settlement import DEMAND, World, full_world, settling

from ledger.core.model import accounts
from ledger.core.model.commands import SetLimits
from ledger.core.model.events import Cause
from ledger.core.model.traits import Reach, Requirement
from ledger.kube.api.api_resources import UNIVERSE_QUOTAS

CARDS = "limits.nvidia.com/gpu"
HUGE: dict[str, Any] = {f"filler-{number}": "x" * 63 for number in range(16_000)}
"""1.2 MB of labels."""


def pod(world: World, name: str, labels: dict[str, str], uid: str = "") -> None:
    body = pod_body(name)
    body["metadata"]["labels"] = labels
    world.server.create("pods", "red", body, uid)


def quota(world: World, name: str = "selected", **labels: str) -> None:
    """Create a universe quota that selects by labels."""
    spec = {"hard": {CARDS: "8"}, "objectSelector": {"matchLabels": labels}}
    body = {"metadata": {"name": name, "generation": 1}, "spec": spec}
    world.server.create(UNIVERSE_QUOTAS.name, "", body)


def used(world: World, name: str = "selected") -> int | None:
    account = accounts.universe(name)
    return world.used(account, CARDS) if account in world.state.accounts else None


async def test_pods_with_a_megabyte_of_labels_are_charged() -> None:
    async with full_world() as world, settling(world):
        quota(world, team="a")
        await world.until(lambda: used(world) == 0)
        for name in ("p-1", "p-2", "p-3"):
            pod(world, name, {**HUGE, "team": "a"})
        await world.until(lambda: used(world) == 3)
        assert world.entry("p-1").traits == ("!best-effort,!read=1,team=a",)
        made = workload(DEPLOYMENTS, "web", replicas=2, template=template(**HUGE))
        world.server.create(DEPLOYMENTS.name, "red", made)
        await world.until(lambda: world.root("deployments.apps/web") is not None)
        assert used(world) == 3


async def test_every_quota_charges_when_selected_labels_do_not_fit() -> None:
    async with full_world() as world, settling(world):
        await world.synced()
        keys = [f"{number}.{'x' * 200}/{'k' * 60}" for number in range(40)]
        selection = tuple(Requirement(key, "In", ("never",)) for key in keys)
        await world.writer.submit(
            SetLimits(accounts.universe("many"), (), {CARDS: 1}, reach=Reach(), selects=selection)
        )
        pod(world, "p", dict.fromkeys(keys, "x" * 63))
        await world.until(lambda: world.entry("p") is not None)
        [text] = world.entry("p").traits
        assert "!unread=" in text
        assert world.counted["labels_unread_total",] == 1
        assert world.used(accounts.universe("many"), CARDS) == 1


async def test_new_label_selects_everything_until_objects_are_read_again() -> None:
    async with full_world() as world:
        await world.reserve("held", "u-held", traits=())
        async with settling(world):
            await world.synced()
            pod(world, "a", {"team": "a"})
            pod(world, "b", {"team": "b"})
            await world.until(lambda: world.entry("a") is not None and world.entry("b") is not None)
            assert world.entry("a").traits == ("!best-effort",)
            most = []
            world.writer.subscribe(lambda _: most.append(used(world) or 0))
            quota(world, team="a")
            await world.until(lambda: used(world) == 2)  # the hold may turn out to be of the team
            assert max(most) == 3
            pod(world, "held", {"team": "b"}, "u-held")
            await world.until(lambda: used(world) == 1)
            assert world.entry("b").traits == ("!best-effort,!read=1,team=b",)
            assert world.entry("a").charge == DEMAND


async def test_change_of_selected_labels_needs_one_command() -> None:
    async with full_world() as world, settling(world):
        quota(world, team="a")
        await world.until(lambda: used(world) == 0)
        pod(world, "p", {"team": "b"})
        await world.until(lambda: world.entry("p") is not None)
        world.server.update("pods", "red", "p", metadata={"labels": {"team": "a"}})
        await world.until(lambda: world.entry("p").traits == ("!best-effort,!read=1,team=a",))
        before = len(world.asked)
        others = {"team": "a", "pod-template-hash": "123", "app": "other"}
        world.server.update("pods", "red", "p", metadata={"labels": others})
        pod(world, "last", {})
        await world.until(lambda: world.entry("last") is not None)
        assert len(world.asked) == before + 1
        assert world.drift == {Cause.UNRESERVED: 2}


async def test_pods_count_by_their_labels_when_their_root_requests_nothing() -> None:
    async with full_world() as world, settling(world):
        quota(world, team="a")
        await world.until(lambda: used(world) == 0)
        made = workload(DEPLOYMENTS, "web", replicas=2, template=template(team="a"))
        stored = world.server.create(DEPLOYMENTS.name, "red", made)
        body = pod_body("web-1")
        body["metadata"] |= {"labels": {"team": "a"}, "ownerReferences": [reference(stored)]}
        world.server.create("pods", "red", body)
        await world.until(
            lambda: used(world) == 1 and world.root("deployments.apps/web") is not None
        )
        plain = {"metadata": {"labels": {}}, "spec": {"containers": [{"name": "main"}]}}
        world.server.update(
            DEPLOYMENTS.name, "red", "web", metadata={"generation": 2}, spec={"template": plain}
        )
        await world.until(lambda: world.root("deployments.apps/web") is None)
        assert used(world) == 1
        quota(world, "later", tier="gold")
        await world.until(lambda: used(world, "later") == 0)
