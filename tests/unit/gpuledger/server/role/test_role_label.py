"""The role label: refused writes are repeated with pauses; only a pod in the Service counts."""

import asyncio
import contextlib
import random
from collections.abc import Coroutine, Iterator
from types import SimpleNamespace
from typing import Any, TypeVar

import msgspec
import pytest
from simulation.engine.loop import VirtualLoop

from gpuledger.server.role.role_label import WRITE_AGAIN_SECONDS_MAX, RoleLabel
from ledger.kube.api.cluster_errors import Forbidden, NotFound
from ledger.kube.client.pod_role import LABEL, REVIEWER
from ledger.log.peers.owner_beats import BEAT_SECONDS, OwnerBeats

SECONDS = 60.0
ROLE = {LABEL: REVIEWER}
T = TypeVar("T")


class ApiServer:
    """An API server with pods, all ready, by their labels. It refuses writes unless it `allows`."""

    def __init__(self, **pods: dict[str, str]) -> None:
        self.pods = pods
        self.writes = 0
        self.allows = True

    async def request(self, method: str, path: str, **options: Any) -> bytes:
        name = path.rpartition("/")[2]
        if name not in self.pods:
            raise NotFound(path)
        if method == "PATCH":
            self.writes += 1
            if not self.allows:
                raise Forbidden("a policy denies it")
            for key, value in msgspec.json.decode(options["body"])["metadata"]["labels"].items():
                self.pods[name] = {} if value is None else {key: value}
        ready = {"conditions": [{"type": "Ready", "status": "True"}]}
        return msgspec.json.encode({"metadata": {"labels": self.pods[name]}, "status": ready})


@contextlib.contextmanager
def running(api: ApiServer, beats: OwnerBeats, *, owner: bool) -> Iterator[None]:
    """Run the label of the pod a."""
    client: Any = api
    label = RoleLabel(
        client,
        beats,
        namespace="own",
        pod="a",
        is_owner=lambda: owner,
        is_ready=lambda: True,
    )
    task = asyncio.get_running_loop().create_task(label.run())
    yield
    task.cancel()


def in_virtual_time(story: Coroutine[Any, Any, T]) -> T:
    return VirtualLoop(random.Random(1), steps_max=100_000).run(story)  # type: ignore[abstract]


def test_refused_writes_of_the_label_are_repeated_with_pauses() -> None:
    async def writes() -> tuple[int, int]:
        api = ApiServer(a={})
        api.allows = False
        with running(api, OwnerBeats("east", "a"), owner=True):
            await asyncio.sleep(SECONDS)
            refused, api.allows = api.writes, True
            await asyncio.sleep(2 * WRITE_AGAIN_SECONDS_MAX)
        return refused, api.writes - refused

    refused, accepted = in_virtual_time(writes())
    assert refused <= SECONDS / WRITE_AGAIN_SECONDS_MAX + 5
    assert accepted == 1


@pytest.mark.parametrize(
    ("pods", "labelled"),
    [({}, True), ({"b": {}}, True), ({"b": ROLE}, False)],
    ids=["no such pod", "a pod without the label", "a pod in the Service"],
)
def test_label_stays_unless_the_service_has_the_pod_that_beats(
    pods: dict[str, dict[str, str]], labelled: bool
) -> None:
    async def labels() -> dict[str, str]:
        api, beats = ApiServer(a=dict(ROLE), **pods), OwnerBeats("east", "a")
        with running(api, beats, owner=False):
            for _ in range(round(SECONDS / BEAT_SECONDS)):
                await receive(beats, "b")
                await asyncio.sleep(BEAT_SECONDS)
        return api.pods["a"]

    assert bool(in_virtual_time(labels())) is labelled


@pytest.mark.parametrize("back", [False, True], ids=["still missed", "back"])
def test_label_of_a_missed_replica_stays_if_it_is_back_before_the_write(back: bool) -> None:
    async def labels() -> dict[str, str]:
        api, beats = ApiServer(a=dict(ROLE), b=dict(ROLE)), OwnerBeats("east", "a")
        seen = ("a", "b") if back else ("a",)
        with running(api, beats, owner=False):
            await beat(beats, "a", "b")
            api.allows = False
            await beat(beats, "a")
            assert api.writes, "the label is not removed yet, because the write is refused"
            await beat(beats, *seen, seconds=0.0)
            api.allows = True
            await beat(beats, *seen)
        return api.pods["b"]

    assert bool(in_virtual_time(labels())) is back


async def beat(beats: OwnerBeats, *names: str, seconds: float = 3.0) -> None:
    """Receive beats of these replicas for some seconds, at least once."""
    for _ in range(1 + round(seconds / BEAT_SECONDS)):
        for name in names:
            await receive(beats, name)
        await asyncio.sleep(BEAT_SECONDS)


@pytest.mark.parametrize("name", ["../secrets/a", "..", "a/b", "A", "a" * 254, "a%2fb", "a\n"])
async def test_beat_of_a_name_that_no_pod_has_does_not_count(name: str) -> None:
    beats = OwnerBeats("east", "a")
    for sent in (name, "b"):
        await receive(beats, sent)
        assert (beats.newest is not None) is (sent == "b")


async def receive(beats: OwnerBeats, name: str) -> None:
    message: Any = SimpleNamespace(data=msgspec.msgpack.encode((name, True)))
    await beats._receive(message)
