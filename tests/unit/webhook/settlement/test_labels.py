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


def pod(one: World, name: str, labels: dict[str, str], uid: str = "") -> None:
    body = pod_body(name)
    body["metadata"]["labels"] = labels
    one.server.create("pods", "red", body, uid)


def quota(one: World, name: str = "selected", **labels: str) -> None:
    """Create a universe quota that selects by labels."""
    spec = {"hard": {CARDS: "8"}, "objectSelector": {"matchLabels": labels}}
    body = {"metadata": {"name": name, "generation": 1}, "spec": spec}
    one.server.create(UNIVERSE_QUOTAS.name, "", body)


def used(one: World, name: str = "selected") -> int | None:
    account = accounts.universe(name)
    return one.used(account, CARDS) if account in one.state.accounts else None


async def test_pods_with_a_megabyte_of_labels_are_charged() -> None:
    async with full_world() as one, settling(one):
        quota(one, team="a")
        await one.until(lambda: used(one) == 0)
        for name in ("p-1", "p-2", "p-3"):
            pod(one, name, {**HUGE, "team": "a"})
        await one.until(lambda: used(one) == 3)
        assert one.entry("p-1").traits == ("!best-effort,!read=1,team=a",)
        made = workload(DEPLOYMENTS, "web", replicas=2, template=template(**HUGE))
        one.server.create(DEPLOYMENTS.name, "red", made)
        await one.until(lambda: one.root("deployments.apps/web") is not None)
        assert used(one) == 3


async def test_every_quota_charges_when_selected_labels_do_not_fit() -> None:
    async with full_world() as one, settling(one):
        await one.synced()
        keys = [f"{number}.{'x' * 200}/{'k' * 60}" for number in range(40)]
        selection = tuple(Requirement(key, "In", ("never",)) for key in keys)
        await one.writer.submit(
            SetLimits(accounts.universe("many"), (), {CARDS: 1}, reach=Reach(), selects=selection)
        )
        pod(one, "p", dict.fromkeys(keys, "x" * 63))
        await one.until(lambda: one.entry("p") is not None)
        [text] = one.entry("p").traits
        assert "!unread=" in text
        assert one.counted["labels_unread_total",] == 1
        assert one.used(accounts.universe("many"), CARDS) == 1


async def test_new_label_selects_everything_until_objects_are_read_again() -> None:
    async with full_world() as one:
        await one.reserve("held", "u-held", traits=())
        async with settling(one):
            await one.synced()
            pod(one, "a", {"team": "a"})
            pod(one, "b", {"team": "b"})
            await one.until(lambda: one.entry("a") is not None and one.entry("b") is not None)
            assert one.entry("a").traits == ("!best-effort",)
            most = []
            one.writer.subscribe(lambda _: most.append(used(one) or 0))
            quota(one, team="a")
            await one.until(lambda: used(one) == 2)  # the hold may turn out to be of the team
            assert max(most) == 3
            pod(one, "held", {"team": "b"}, "u-held")
            await one.until(lambda: used(one) == 1)
            assert one.entry("b").traits == ("!best-effort,!read=1,team=b",)
            assert one.entry("a").charge == DEMAND


async def test_change_of_selected_labels_needs_one_command() -> None:
    async with full_world() as one, settling(one):
        quota(one, team="a")
        await one.until(lambda: used(one) == 0)
        pod(one, "p", {"team": "b"})
        await one.until(lambda: one.entry("p") is not None)
        one.server.update("pods", "red", "p", metadata={"labels": {"team": "a"}})
        await one.until(lambda: one.entry("p").traits == ("!best-effort,!read=1,team=a",))
        before = len(one.asked)
        others = {"team": "a", "pod-template-hash": "123", "app": "other"}
        one.server.update("pods", "red", "p", metadata={"labels": others})
        pod(one, "last", {})
        await one.until(lambda: one.entry("last") is not None)
        assert len(one.asked) == before + 1
        assert one.drift == {Cause.UNRESERVED: 2}


async def test_pods_count_by_their_labels_when_their_root_requests_nothing() -> None:
    async with full_world() as one, settling(one):
        quota(one, team="a")
        await one.until(lambda: used(one) == 0)
        made = workload(DEPLOYMENTS, "web", replicas=2, template=template(team="a"))
        stored = one.server.create(DEPLOYMENTS.name, "red", made)
        body = pod_body("web-1")
        body["metadata"] |= {"labels": {"team": "a"}, "ownerReferences": [reference(stored)]}
        one.server.create("pods", "red", body)
        await one.until(lambda: used(one) == 1 and one.root("deployments.apps/web") is not None)
        plain = {"metadata": {"labels": {}}, "spec": {"containers": [{"name": "main"}]}}
        one.server.update(
            DEPLOYMENTS.name, "red", "web", metadata={"generation": 2}, spec={"template": plain}
        )
        await one.until(lambda: one.root("deployments.apps/web") is None)
        assert used(one) == 1
        quota(one, "later", tier="gold")
        await one.until(lambda: used(one, "later") == 0)
