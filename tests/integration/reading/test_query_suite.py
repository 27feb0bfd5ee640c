"""One suite for all sources of commands: store, service by URL, cluster by kubeconfig.

Each question is answered from the same log; the rows and the position of each source are those of
the store. Pages have two rows here, those of the store three, so most answers have several.
"""

import asyncio
import json
import os
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.generators.read_history import DENIED, WEB, write_history
from support.harness.command_line import gpuledger
from support.servers.aggregator import TOKEN, Aggregator
from support.servers.service_process import ServiceProcess, running_service

from gpuledger.cli.exit_codes import CommandError, Exit
from gpuledger.reading import paged_reads
from gpuledger.reading.ledger_queries import LedgerQueries
from gpuledger.reading.query_source import ledger_queries
from gpuledger.storage import projection_views
from ledger.runtime.settings import setting_sources
from projections.queries.query_scope import QueryScope

pytestmark = pytest.mark.integration

SHOWN_SECONDS = 30.0
ALL, TEAM, EAST = QueryScope(), QueryScope("team-a"), QueryScope("", "east")
Question = Callable[[LedgerQueries, "Times"], Awaitable[Any]]


class Times:
    """The time of each position of the log."""

    def __init__(self, events: list[Any]) -> None:
        self._times = {str(event.position): event.time for event in events}

    def __getitem__(self, position: int) -> str:
        return str(self._times[str(position)])


QUESTIONS: dict[str, Question] = {
    "usage": lambda source, _: source.usage(ALL),
    "usage of a namespace": lambda source, _: source.usage(TEAM),
    "usage of a cluster": lambda source, _: source.usage(EAST),
    "usage of a quota": lambda source, _: source.usage(ALL, quota="company"),
    "usage at a position": lambda source, _: source.usage(ALL, at="8"),
    "usage at a time": lambda source, times: source.usage(ALL, at=times[9]),
    "shares by cluster": lambda source, _: source.shares(ALL, "cluster"),
    "shares by namespace": lambda source, _: source.shares(ALL, "namespace", quota="company"),
    "shares at a position": lambda source, _: source.shares(ALL, "namespace", at="9"),
    "limits": lambda source, _: source.limits(ALL),
    "limits of a namespace": lambda source, _: source.limits(TEAM),
    "holders": lambda source, _: source.holders(ALL),
    "holders of a namespace": lambda source, _: source.holders(TEAM),
    "holders with pods": lambda source, _: source.holders(ALL, pods=True),
    "holders of a root": lambda source, _: source.holders(ALL, root=WEB),
    "holders up to a limit": lambda source, _: source.holders(ALL, limit=3),
    "holders up to a page": lambda source, _: source.holders(ALL, limit=2),
    "holders with room in the limit": lambda source, _: source.holders(ALL, limit=999),
    "holders at a position": lambda source, _: source.holders(ALL, at="10", pods=True),
    "holds": lambda source, _: source.holds(ALL),
    "holds of a cluster": lambda source, _: source.holds(EAST),
    "holds at a time": lambda source, times: source.holds(ALL, at=times[11]),
    "cards": lambda source, _: source.cards(),
    "cards of a node": lambda source, _: source.cards(node="n1"),
    "cards of a cluster": lambda source, _: source.cards(cluster="east"),
    "cards with pods": lambda source, _: source.cards(pods=True),
    "cards at a position": lambda source, _: source.cards(at="7", pods=True),
    "events": lambda source, _: source.events(ALL, limit=1_000),
    "events of a namespace": lambda source, _: source.events(TEAM, limit=1_000),
    "events up to a limit": lambda source, _: source.events(ALL, limit=5),
    "events between positions": lambda source, _: source.events(
        ALL, since="3", until="9", limit=99
    ),
    "events between times": lambda source, times: source.events(
        ALL, since=times[3], until=times[9], limit=99
    ),
    "events from a position to a time": lambda source, times: source.events(
        ALL, since="3", until=times[9], limit=99
    ),
    "denials": lambda source, _: source.denials(ALL, limit=100),
    "denials of a namespace": lambda source, _: source.denials(TEAM, limit=100),
    "denials up to a limit": lambda source, _: source.denials(ALL, limit=1),
    "denials from a position": lambda source, _: source.denials(ALL, since="15", limit=100),
    "denials from a time": lambda source, times: source.denials(ALL, since=times[3], limit=100),
    "drift": lambda source, _: source.drift(ALL, limit=1_000),
    "drift of a cluster": lambda source, _: source.drift(EAST, limit=1_000),
    "drift up to a limit": lambda source, _: source.drift(ALL, limit=1),
    "drift from a position": lambda source, _: source.drift(ALL, since="15", limit=99),
    "drift up to a position": lambda source, _: source.drift(ALL, until="14", limit=99),
    "drift up to a time": lambda source, times: source.drift(ALL, until=times[14], limit=99),
}
"""Questions whose answers have rows."""

EMPTY: dict[str, Question] = {
    "events of another namespace": lambda source, _: source.events(QueryScope("none"), limit=9),
    "denials before all": lambda source, times: source.denials(ALL, until="3", limit=9),
    "drift before all": lambda source, times: source.drift(ALL, until=times[9], limit=9),
    "usage before all": lambda source, _: source.usage(ALL, at="2001-01-01"),
    "cards of no node": lambda source, _: source.cards(node="n9"),
}

REFUSED: dict[str, tuple[Question, Exit]] = {
    "usage after the end": (lambda source, _: source.usage(ALL, at="99"), Exit.NOT_FOUND),
    "usage at no moment": (lambda source, _: source.usage(ALL, at="monday"), Exit.USAGE),
    "usage in the future": (lambda source, _: source.usage(ALL, at="2999-01-01"), Exit.USAGE),
    "events after the end": (
        lambda source, _: source.events(ALL, since="99", limit=9),
        Exit.NOT_FOUND,
    ),
    "events reversed": (
        lambda source, _: source.events(ALL, since="9", until="3", limit=9),
        Exit.USAGE,
    ),
    "events reversed in time": (
        lambda source, times: source.events(ALL, since=times[12], until="3", limit=9),
        Exit.USAGE,
    ),
    "denials after the end": (
        lambda source, _: source.denials(ALL, until="99", limit=9),
        Exit.NOT_FOUND,
    ),
    "drift reversed in time": (
        lambda source, times: source.drift(ALL, since=times[12], until="3", limit=9),
        Exit.USAGE,
    ),
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """A service on the history."""
    store = tmp_path_factory.mktemp("reading") / "store"
    asyncio.run(write_history(store))
    with running_service(store) as service:
        # The service projects denials beside the records, so they may follow later.
        until = time.monotonic() + SHOWN_SECONDS
        while len(gpuledger("denials", "-o", "json", store=store).json) < DENIED:
            assert time.monotonic() < until, "the service shows all denials"
            time.sleep(0.1)
        yield service


@asynccontextmanager
async def source_of(**options: str) -> AsyncIterator[LedgerQueries]:
    environment = {name: value for name, value in os.environ.items() if name == "PATH"}
    async with ledger_queries(setting_sources.load(options, environment)) as queries:
        yield queries


@pytest.fixture
async def store(served: ServiceProcess) -> AsyncIterator[LedgerQueries]:
    async with source_of(store_dir=str(served.store)) as queries:
        yield queries


@pytest.fixture
async def times(store: LedgerQueries) -> Times:
    return Times(list((await store.events(ALL, limit=1_000)).rows))


@pytest.fixture(params=["service", "cluster"])
async def remote(
    served: ServiceProcess, request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[LedgerQueries]:
    """The service by its URL, and behind the aggregation layer of a kubeconfig's cluster."""
    if request.param == "service":
        authority = str(served.store / "tls" / "ca.crt")
        async with source_of(server=served.url, ca_file=authority) as queries:
            yield queries
        return
    layer = Aggregator(tmp_path, served.url, served.tls())
    async with (
        layer.running(),
        source_of(kubeconfig=str(kubeconfig(tmp_path, layer, {"token": TOKEN}))) as queries,
    ):
        yield queries


def kubeconfig(folder: Path, layer: Aggregator, user: dict[str, Any]) -> Path:
    cluster = {"server": layer.url, "certificate-authority": layer.authority.name}
    content = {
        "current-context": "c",
        "contexts": [
            {"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "team-a"}}
        ],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
    }
    path = folder / "config"
    path.write_text(json.dumps(content))
    return path


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paged_reads, "PAGE_ROWS", 2)
    monkeypatch.setattr(projection_views, "PAGE_ROWS", 3)


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
async def test_rows_and_position_are_those_of_the_store(
    store: LedgerQueries, remote: LedgerQueries, times: Times, question: Question
) -> None:
    expected = await question(store, times)
    assert expected.rows
    assert await question(remote, times) == expected


@pytest.mark.parametrize("question", EMPTY.values(), ids=EMPTY)
async def test_every_source_has_an_empty_answer(
    store: LedgerQueries, remote: LedgerQueries, times: Times, question: Question
) -> None:
    expected = await question(store, times)
    assert not expected.rows
    assert await question(remote, times) == expected


@pytest.mark.parametrize(("question", "status"), REFUSED.values(), ids=REFUSED)
async def test_refusals_have_the_status_of_the_store(
    store: LedgerQueries, remote: LedgerQueries, times: Times, question: Question, status: Exit
) -> None:
    refusals = []
    for source in (store, remote):
        with pytest.raises(CommandError) as refused:
            await question(source, times)
        refusals.append((refused.value.status, str(refused.value)))
    assert refusals[0][0] == refusals[1][0] == status
    if status is Exit.NOT_FOUND:
        assert refusals[0] == refusals[1]


async def test_a_limit_has_the_first_holders_and_more_than_that(store: LedgerQueries) -> None:
    everyone = (await store.holders(ALL)).rows
    for limit in range(1, len(everyone) + 2):
        answer = await store.holders(ALL, limit=limit)
        assert answer.rows == everyone[:limit]
        assert answer.more == (limit < len(everyone))


async def test_the_history_has_every_kind_of_row(store: LedgerQueries) -> None:
    assert len((await store.denials(ALL, limit=9)).rows) == DENIED
    assert [row.key for row in (await store.drift(ALL, limit=9)).rows] == [
        "pods/lost",
        "pods/stray",
    ]
    assert {row.resource for row in (await store.usage(ALL)).rows} > {"requests.nvidia.com/gpu"}


async def test_a_question_without_a_limit_is_bounded(
    remote: LedgerQueries, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paged_reads, "ROWS_MAX", 3)
    with pytest.raises(CommandError, match="more than 3 rows"):
        await remote.holders(ALL)


def manifest(folder: Path, memory: int, **metadata: Any) -> str:
    """Write a pod that asks for a card with so many MiB, and return its file."""
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": str(memory)}
    spec = {"containers": [{"name": "main", "resources": {"limits": limits}}]}
    content = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"} | metadata,
        "spec": spec,
    }
    path = folder / "pod.json"
    path.write_text(json.dumps(content))
    return str(path)


def decided(text: str) -> str:
    """Return a sentence without the id of its decision, which differs each time."""
    return re.sub(r"decision [0-9a-f-]+", "decision", text)


@pytest.mark.parametrize("memory", [1_000, 90_000])
async def test_every_source_makes_the_same_decision(
    store: LedgerQueries, remote: LedgerQueries, tmp_path: Path, memory: int
) -> None:
    file = manifest(tmp_path, memory)
    expected, actual = [await source.explain(file, "team-a", "alice") for source in (store, remote)]
    assert decided(actual.answer) == decided(expected.answer)
    assert (actual.allowed, actual.demand) == (expected.allowed, expected.demand)
    assert actual.allowed is (memory == 1_000)
    fits = [await source.fit(file, "team-a", "") for source in (store, remote)]
    assert fits[0].pods == fits[1].pods
    assert fits[0].fits is fits[1].fits is (memory == 1_000)


async def test_a_wrong_manifest_is_named_by_every_source(
    store: LedgerQueries, remote: LedgerQueries, tmp_path: Path
) -> None:
    file = manifest(tmp_path, 1_000, name=1)
    for source in (store, remote):
        for ask in (source.explain, source.fit):
            with pytest.raises(CommandError, match=r"pod\.json: .*metadata") as refused:
                await ask(file, "team-a", "")
            assert refused.value.status is Exit.USAGE


async def test_another_namespace_than_that_of_the_manifest_is_refused(
    store: LedgerQueries, remote: LedgerQueries, tmp_path: Path
) -> None:
    file = manifest(tmp_path, 1_000, namespace="team-b")
    for source in (store, remote):
        with pytest.raises(CommandError, match=r"--namespace: .*'team-b'") as refused:
            await source.explain(file, "team-a", "")
        assert refused.value.status is Exit.USAGE


async def test_pods_that_wait_are_known_to_a_cluster_only(
    store: LedgerQueries, remote: LedgerQueries
) -> None:
    with pytest.raises(CommandError, match="the log does not record waiting pods") as refused:
        await store.waiting(ALL)
    assert refused.value.status is Exit.USAGE
    with pytest.raises(CommandError, match="this service has no cluster") as refused:
        await remote.waiting(ALL)
    assert refused.value.status is Exit.NOT_FOUND


async def test_earlier_cards_are_for_a_store(remote: LedgerQueries, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="--at 3: earlier cards are read from a store"):
        await remote.fit(manifest(tmp_path, 1), "team-a", "3")
