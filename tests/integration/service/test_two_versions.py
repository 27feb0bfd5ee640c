"""A rolling upgrade and a roll back between two versions with different record schemas.

The next version is this one with a raised schema, in every process that it starts. Two replicas
share one nats-server. Pods are created all the time, each by a replica that is up, as the API
server would choose it. A creation may not be refused because of the versions.
"""

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
from support.harness.command_line import Ended, gpuledger
from support.servers.nats_servers import NatsServer
from support.servers.service_process import ServiceProcess, creation, ledger_problem, post

from ledger.log import record_schema

pytestmark = pytest.mark.integration

NEXT = record_schema.SCHEMA + 1
SEALS_NEWEST = "record_schema.to_seal = lambda last: record_schema.SCHEMA\n"
PAUSE_SECONDS = 0.02


class Replica(ServiceProcess):
    """A replica that can start as the next version."""

    def __init__(self, folder: Path, nats: NatsServer) -> None:
        super().__init__(folder, f"--nats={nats.url}")
        self.serving = False

    def start_as(self, version: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
        with monkeypatch.context() as environment:
            for name, value in version.items():
                environment.setenv(name, value)
            self.start()
        self.serving = True

    def drain(self) -> None:
        """End as a pod does that gets no new requests."""
        self.serving = False
        assert self.stop() == 0


class Creations:
    """Reviews of new pods, sent without a pause to replicas that serve; counts refusals."""

    def __init__(self, replicas: list[Replica]) -> None:
        self.allowed = 0
        self.refused: list[str] = []
        self._replicas = replicas
        self._numbers = itertools.count()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        for number in self._numbers:
            serving = [replica for replica in self._replicas if replica.serving]
            replica = serving[number % len(serving)]
            await self._create(replica, number)
            await asyncio.sleep(PAUSE_SECONDS)

    async def _create(self, replica: Replica, number: int) -> None:
        async with replica.client() as client:
            try:
                response = await post(client, creation(f"pod-{number}"))
            except httpx2.HTTPError as error:
                if replica.serving:
                    self.refused.append(repr(error))
                return
        if response["allowed"]:
            self.allowed += 1
        elif replica.serving:
            self.refused.append(str(response["status"]))


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[NatsServer]:
    server = NatsServer(tmp_path / "nats")
    server.launch()
    asyncio.run(server.ready())
    yield server
    server.kill()


@pytest.fixture
def replicas(tmp_path: Path, nats: NatsServer) -> Iterator[list[Replica]]:
    made = [Replica(tmp_path / name, nats) for name in ("a", "b")]
    yield made
    for replica in made:
        if replica.process is not None and replica.process.poll() is None:
            replica.kill()


def next_version(folder: Path, more: str = "") -> dict[str, str]:
    """Return the environment of the next version, also of the processes that a replica starts."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(
        f"from ledger.log import record_schema\nrecord_schema.SCHEMA = {NEXT}\n{more}"
    )
    paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH", "")])]
    return {"PYTHONPATH": os.pathsep.join(paths)}


async def rolled(
    replicas: list[Replica], version: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replace one replica after the other, while at least one serves."""
    for replica in replicas:
        replica.serving = False
        await asyncio.to_thread(replica.drain)
        await asyncio.to_thread(replica.start_as, version, monkeypatch)


def typed(replica: Replica, version: dict[str, str], *arguments: str) -> Ended:
    """Run a command of a version on the log."""
    return gpuledger(*arguments, *replica.options, "-o", "json", store=replica.store, **version)


RAISE = ("log", "raise-schema")
QUOTA = ("quota", "set", "-n", "other", "main", "limits.nvidia.com/gpumem=1000")
"""A command appends by itself, whichever replica is preferred."""


async def test_no_creation_is_refused_while_versions_roll_forth_and_back(
    tmp_path: Path, replicas: list[Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = next_version(tmp_path / "next")
    for replica in replicas:
        replica.start_as({}, monkeypatch)
    creations = Creations(replicas)
    async with creations.running():
        await rolled(replicas, newer, monkeypatch)
        await rolled(replicas, {}, monkeypatch)
        await rolled(replicas[:1], newer, monkeypatch)
        assert (await asyncio.to_thread(typed, replicas[0], newer, *QUOTA)).status == 0
        refused = await asyncio.to_thread(typed, replicas[0], newer, *RAISE)
        assert refused.status == 1
        assert f"reads records up to schema {NEXT - 1}" in refused.err
        await rolled(replicas[1:], newer, monkeypatch)
        raised = await asyncio.to_thread(typed, replicas[0], newer, *RAISE)
        assert (raised.json["before"], raised.json["schema"]) == (NEXT - 1, NEXT)
        await asyncio.sleep(1)
    assert creations.refused == []
    assert creations.allowed > 50
    replicas[0].drain()
    replicas[0].start(ready=False)
    assert f"holds records of schema {NEXT}" in ledger_problem(replicas[0])


@pytest.mark.long
async def test_without_the_rule_an_upgrade_refuses_creations(
    tmp_path: Path, replicas: list[Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    hasty = next_version(tmp_path / "next", SEALS_NEWEST)
    for replica in replicas:
        replica.start_as({}, monkeypatch)
    creations = Creations(replicas)
    async with creations.running():
        await rolled(replicas[:1], hasty, monkeypatch)
        assert (await asyncio.to_thread(typed, replicas[0], hasty, *QUOTA)).status == 0
        await asyncio.sleep(1)
    assert creations.refused != []
