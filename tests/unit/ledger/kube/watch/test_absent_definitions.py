"""Watching a resource that is defined later, removed, served otherwise, or not to be found out."""

import asyncio
import contextlib
import json
from typing import Any

import pytest
from aiohttp import web
from support.fakes.canned_apiserver import CannedApiServer, failure

from ledger.kube.api.api_resources import DEFINITIONS, POLICIES, Resource
from ledger.kube.api.cluster_errors import NotServed
from ledger.kube.api.cluster_ports import Changed, Interrupted, Listed
from ledger.kube.cluster.kubernetes_cluster import KubernetesCluster

SECONDS = 20.0
RAY = Resource("ray.io", "v1", "rayclusters", "RayCluster")


class Definable:
    """A resource that an API server serves only while it is defined."""

    def __init__(self, answers: CannedApiServer, resource: Resource) -> None:
        self.answers, self.resource = answers, resource
        self.version = 10
        self.watched = asyncio.Event()
        self.changed = asyncio.Event()
        answers.by_path[DEFINITIONS.collection()] = self._definitions
        answers.by_path["/apis"] = answers.by_path["/api"] = {"kind": "APIGroupDiscoveryList"}

    def define(self) -> None:
        self.version += 1
        self.answers.by_path[self.resource.collection()] = self._collection

    def remove(self) -> None:
        self.version += 1
        del self.answers.by_path[self.resource.collection()]
        self.changed.set()

    @property
    def defined(self) -> bool:
        return self.resource.collection() in self.answers.by_path

    async def _definitions(self, request: web.Request) -> web.StreamResponse:
        assert request.query["fieldSelector"] == f"metadata.name={self.resource.name}"
        items = [{"metadata": {"name": self.resource.name}}] if self.defined else []
        return web.json_response(self._page(items))

    async def _collection(self, request: web.Request) -> web.StreamResponse:
        item: dict[str, Any] = {
            "metadata": {"name": "r", "uid": "u", "resourceVersion": "9"},
            "spec": {"a": 1},
        }
        if "watch" not in request.query:
            return web.json_response(self._page([item]))
        response = web.StreamResponse()
        await response.prepare(request)
        self.watched.set()
        await self.changed.wait()
        self.changed.clear()
        item["metadata"]["resourceVersion"] = str(self.version)
        await response.write(json.dumps({"type": "DELETED", "object": item}).encode() + b"\n")
        return response

    def _page(self, items: list[Any]) -> dict[str, Any]:
        return {"metadata": {"resourceVersion": str(self.version)}, "items": items}


class Clock:
    """Sleeps that end when the test ends them."""

    def __init__(self) -> None:
        self.delays: list[float] = []
        self.asleep = asyncio.Event()
        self._wake = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        self.delays.append(seconds)
        self.asleep.set()
        await self._wake.wait()
        self._wake.clear()

    def wake(self) -> None:
        self.asleep.clear()
        self._wake.set()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def cluster(client, clock) -> KubernetesCluster:
    return KubernetesCluster(client, clock.sleep)


@pytest.fixture
def ray(answers) -> Definable:
    return Definable(answers, RAY)


@pytest.fixture
async def changes(cluster):
    async with contextlib.aclosing(cluster.watch_objects(RAY)) as stream:
        yield stream


async def told(changes) -> Any:
    async with asyncio.timeout(SECONDS):
        return await anext(changes)


async def test_watch_yields_absence_with_proof_when_a_resource_is_removed(ray, changes):
    ray.define()
    assert len((await told(changes)).objects) == 1
    next_one = asyncio.create_task(told(changes))
    await ray.watched.wait()
    ray.remove()
    gone, absent, nothing = await next_one, await told(changes), await told(changes)
    assert isinstance(gone, Changed)
    assert gone.deleted
    assert absent.absent
    assert "rayclusters.ray.io v1 is not served by http://127" in absent.reason
    assert "no CustomResourceDefinition rayclusters.ray.io" in absent.reason
    assert nothing == Listed(ray.version, [])


async def test_a_resource_that_is_defined_again_is_listed_again(ray, changes, clock):
    assert [type(await told(changes)) for _ in range(2)] == [Interrupted, Listed]
    news = asyncio.create_task(told(changes))
    await clock.asleep.wait()
    ray.define()
    clock.wake()
    listed = await news
    assert [item.metadata.name for item in listed.objects] == ["r"]
    assert listed.objects[0].spec == {"a": 1}


async def test_absence_is_reported_once_and_polled_with_growing_pauses(
    ray, changes, clock, answers
):
    await told(changes)
    await told(changes)
    news = asyncio.create_task(told(changes))
    for _ in range(12):
        await clock.asleep.wait()
        clock.wake()
    await clock.asleep.wait()
    assert not news.done()
    ray.define()
    clock.wake()
    assert isinstance(await news, Listed)
    assert 15 <= clock.delays[-1] <= 30
    assert answers.times_asked("/apis") == 1


async def test_a_definition_that_is_not_established_proves_nothing(ray, changes, answers, clock):
    definition = {"metadata": {"name": RAY.name}}
    page = {"metadata": {"resourceVersion": "10"}, "items": [definition]}
    answers.by_path[DEFINITIONS.collection()] = page
    absent = await told(changes)
    assert "is not established" in absent.reason
    await no_further_change_comes(changes, clock)


async def test_a_resource_that_is_served_in_another_version_is_not_proved_empty(
    ray, changes, answers, clock
):
    entry = {
        "resource": RAY.plural,
        "responseKind": {"kind": RAY.kind},
        "verbs": ["list", "watch"],
    }
    group = {
        "metadata": {"name": RAY.group},
        "versions": [{"version": "v2", "resources": [entry]}],
    }
    answers.by_path["/apis"] = {"kind": "APIGroupDiscoveryList", "items": [group]}
    absent = await told(changes)
    assert "which serves it as v2" in absent.reason
    await no_further_change_comes(changes, clock)


async def test_without_the_right_to_see_definitions_nothing_is_proved(ray, changes, answers, clock):
    answers.by_path[DEFINITIONS.collection()] = failure(403, "Forbidden", "may not")
    absent = await told(changes)
    assert absent.absent
    assert "is not known" in absent.reason
    assert "may not" in absent.reason
    await no_further_change_comes(changes, clock)


async def test_a_group_whose_server_is_down_is_not_proved_empty(ray, changes, answers, clock):
    group = {
        "metadata": {"name": RAY.group},
        "versions": [{"version": "v1", "freshness": "Stale"}],
    }
    answers.by_path["/apis"] = {"kind": "APIGroupDiscoveryList", "items": [group]}
    assert "does not answer" in (await told(changes)).reason
    await no_further_change_comes(changes, clock)


async def test_a_proof_that_failed_is_tried_again(ray, changes, answers, clock):
    answers.by_path[DEFINITIONS.collection()] = failure(503, "ServiceUnavailable")
    assert "is not known" in (await told(changes)).reason
    news = asyncio.create_task(told(changes))
    await clock.asleep.wait()
    answers.by_path[DEFINITIONS.collection()] = ray._definitions
    clock.wake()
    assert "no CustomResourceDefinition" in (await news).reason
    assert await told(changes) == Listed(ray.version, [])


async def test_a_proof_ends_when_the_resource_is_defined_in_another_version(
    ray, changes, answers, clock
):
    assert [type(await told(changes)) for _ in range(2)] == [Interrupted, Listed]
    news = asyncio.create_task(told(changes))
    await clock.asleep.wait()
    definition = {"metadata": {"name": RAY.name}}
    page = {"metadata": {"resourceVersion": "20"}, "items": [definition]}
    answers.by_path[DEFINITIONS.collection()] = page
    clock.wake()
    assert "is not established" in (await news).reason
    await no_further_change_comes(changes, clock)


async def test_watch_reports_another_failure_while_a_resource_is_absent(
    ray, changes, answers, clock
):
    assert [type(await told(changes)) for _ in range(2)] == [Interrupted, Listed]
    news = asyncio.create_task(told(changes))
    await clock.asleep.wait()
    answers.by_path[RAY.collection()] = failure(403, "Forbidden", "may not")
    clock.wake()
    refused = await news
    assert not refused.absent
    assert "may not" in refused.reason


async def test_watch_pauses_when_a_resource_is_listed_but_not_watchable(changes, answers, clock):
    async def collection(request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            return web.Response(status=404, text="404 page not found\n")
        return web.json_response({"metadata": {"resourceVersion": "10"}, "items": []})

    answers.by_path[RAY.collection()] = collection
    assert isinstance(await told(changes), Listed)
    broken = await told(changes)
    assert isinstance(broken, Interrupted)
    assert not broken.absent, "it is served, so nothing is proved"
    assert "404" in broken.reason
    again = asyncio.create_task(told(changes))
    async with asyncio.timeout(SECONDS):
        await clock.asleep.wait()
    assert not again.done()
    clock.wake()
    assert isinstance(await again, Listed)


async def test_missing_own_definition_is_reported_like_any_absence(answers, cluster):
    ours = Definable(answers, POLICIES)
    async with contextlib.aclosing(cluster.watch_policies()) as changes:
        missing = await told(changes)
        assert isinstance(missing, Interrupted)
        assert missing.absent
        assert await told(changes) == Listed(ours.version, [])


async def test_watch_reports_a_failure_when_it_is_not_an_absence(answers, cluster):
    answers.by_path[POLICIES.collection()] = failure(403, "Forbidden", "may not")
    async with contextlib.aclosing(cluster.watch_policies()) as changes:
        refused = await told(changes)
    assert isinstance(refused, Interrupted)
    assert not refused.absent
    assert "may not" in refused.reason


async def test_one_object_is_read_or_is_not_there(answers, cluster):
    path = RAY.object("red", "r")
    answers.by_path[path] = {"metadata": {"name": "r", "resourceVersion": "7"}, "spec": {}}
    assert (await cluster.get_object(RAY, "red", "r")).metadata.version() == 7
    assert "resourceVersion" not in answers.asked[-1].query, "must be linearizable"
    answers.by_path[path] = failure(404, "NotFound", name="r")
    assert await cluster.get_object(RAY, "red", "r") is None


async def test_an_object_of_an_api_that_is_not_served_is_not_known_to_be_missing(cluster):
    with pytest.raises(NotServed, match="404"):
        await cluster.get_object(RAY, "red", "r")


async def test_a_list_may_be_of_one_namespace(answers, cluster):
    items = [{"metadata": {"name": "r", "namespace": "red", "resourceVersion": "7"}}]
    answers.by_path[RAY.collection("red")] = {
        "metadata": {"resourceVersion": "8"},
        "items": items,
    }
    listed = await cluster.list_objects(RAY, "red")
    assert (listed.version, [item.metadata.name for item in listed.objects]) == (8, ["r"])


async def no_further_change_comes(changes, clock: Clock) -> None:
    """The stream waits for its next look, which the clock lets it take, and waits again."""
    waiting = asyncio.create_task(anext(changes))
    async with asyncio.timeout(SECONDS):
        for _ in range(2):
            await clock.asleep.wait()
            clock.wake()
        await clock.asleep.wait()
    assert not waiting.done()
    waiting.cancel()
    await asyncio.wait([waiting])
