"""The trips: one request of each kind, profiled after another of its kind was answered."""

import asyncio
import tempfile
from pathlib import Path
from typing import Any, Final

import msgspec
from starlette.applications import Starlette

from tests.bench.trips import harness, sample_objects, virtual_time
from tests.bench.trips.api_server_stub import ApiServerStub
from tests.bench.trips.call_profile import Entry, Profile
from tests.bench.trips.sample_objects import MEMORY, NAMESPACE
from tests.bench.trips.virtual_time import idle

PODS: Final = "/api/v1/pods"
_NODE: Final = harness.NODES[1]


def profiled() -> dict[str, list[Entry]]:
    """Return the functions that each trip enters, by the name of the trip."""
    trips = {
        "review": virtual_time.run(_review("validate", {})),
        "mutate": virtual_time.run(_review("mutate", {MEMORY: "4k"})),
        **virtual_time.run(_scheduled()),
        "release": virtual_time.run(_release()),
    }
    payloads = virtual_time.run(harness.records("first", "second"))
    with tempfile.TemporaryDirectory() as directory:
        projected = asyncio.run(_projected(Path(directory, "projection.sqlite"), payloads))
    return trips | {"project": projected}


async def _review(webhook: str, limits: dict[str, str]) -> list[Entry]:
    """Review the creation of a pod by the controller of its ReplicaSet."""
    server = ApiServerStub()
    server.store("/apis/apps/v1/deployments", sample_objects.deployment())
    server.store("/apis/apps/v1/replicasets", sample_objects.replica_set())
    path = f"/admission/{webhook}"
    async with harness.admission(server) as app:
        await _reviewed(app, "/admission/validate", sample_objects.deployment_review())
        await _reviewed(
            app, path, sample_objects.pod_review(sample_objects.pod("first", limits or None))
        )
        await idle()
        body = sample_objects.pod_review(sample_objects.pod("second", limits or None))
        with Profile() as profile:
            answer = await _post(app, path, body)
    response = answer["response"]
    assert response["allowed"], answer
    assert ("patch" in response) is (webhook == "mutate"), answer
    return profile.entries


async def _reviewed(app: Starlette, path: str, body: bytes) -> None:
    answer = await _post(app, path, body)
    assert answer["response"]["allowed"], answer


async def _scheduled() -> dict[str, list[Entry]]:
    """Select nodes for a pod; filter, prioritize and bind another one."""
    server, names = ApiServerStub(), ("first", "second")
    async with harness.scheduling(server, *names) as app:
        for name in names:
            await idle()
            profiles = await _placed(app, sample_objects.pod(name, version=7))
    assert [path for _, path in server.written if path.endswith("/second/binding")], server.written
    return profiles


async def _placed(app: Starlette, pod: sample_objects.Object) -> dict[str, list[Entry]]:
    meta = pod["metadata"]
    question = {"Pod": pod, "NodeNames": list(harness.NODES)}
    other = sample_objects.pod(f"{meta['name']}-other", version=7)
    binding = {
        "PodName": meta["name"],
        "PodNamespace": NAMESPACE,
        "PodUID": meta["uid"],
        "Node": _NODE,
    }
    entries = {}
    for verb, asked in (
        ("select", {**question, "Pod": other}),
        ("filter", question),
        ("prioritize", question),
        ("bind", binding),
    ):
        body = msgspec.json.encode(asked)
        with Profile() as profile:
            answer = await _post(app, f"/extender/{verb}", body)
        entries[verb] = profile.entries
        if verb == "prioritize":
            assert {node["Host"] for node in answer} == set(harness.NODES), answer
        else:
            assert not answer["Error"], answer
    return entries


async def _release() -> list[Entry]:
    """Receive a pod's deletion from the watch, until the pod is charged no more."""
    server, names = ApiServerStub(), ("first", "second")
    for name in names:
        server.store(PODS, sample_objects.pod(name, version=7))
    async with harness.settlement(server) as writer:
        for version, name in enumerate(names, 201):
            assert harness.is_charged(writer, name)
            await idle()
            with Profile() as profile:
                server.tell(PODS, "DELETED", sample_objects.pod(name, version=version))
                await idle()
            assert not harness.is_charged(writer, name)
    return profile.entries


async def _projected(path: Path, payloads: list[bytes]) -> list[Entry]:
    """Project the last record of a log."""
    async with harness.projecting(path, payloads) as (log, projector):
        async for batch in log.read(1, len(payloads) - 1):
            await projector.project(batch)
        async for batch in log.read(len(payloads), len(payloads)):
            with Profile() as profile:
                events = await projector.project(batch)
            assert events
    return profile.entries


async def _post(app: Starlette, path: str, body: bytes) -> Any:
    """Post a body to an ASGI application, return the answer's JSON."""
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    length = str(len(body)).encode()
    scope = {
        "type": "http",
        "method": "POST",
        "scheme": "https",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "http_version": "1.1",
        "headers": [(b"content-type", b"application/json"), (b"content-length", length)],
    }
    await app(scope, receive, send)
    text = b"".join(message.get("body", b"") for message in sent)
    assert sent[0]["status"] == 200, text
    return msgspec.json.decode(text)
