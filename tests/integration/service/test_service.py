"""The service as users run it, without a cluster: killed, damaged, asked by anonymous clients."""

import asyncio
import os
import shutil
import signal
import time
from pathlib import Path

import httpx2
import pytest
from cryptography.x509.oid import NameOID
from support.harness.command_line import gpuledger
from support.servers.service_process import (
    VALIDATE,
    ServiceProcess,
    creation,
    held_uids,
    ledger_problem,
    post,
    running_service,
    set_quota,
    used,
)
from support.servers.tls_server import ClientAuthority

from ledger.core.model.denials import Reason
from ledger.log.embedded import server_files
from ledger.log.embedded.store_lock import acquire
from ledger.runtime.metric_table import METRICS
from projections.api.usage_families import USAGE_METRICS

pytestmark = pytest.mark.integration


async def flood(service: ServiceProcess, prefix: str, admitted: set[str], seconds: float) -> None:
    """Post creations until the time is over or the service is gone; collect the admitted uids."""
    until = time.monotonic() + seconds
    async with service.client() as client:

        async def one_client(number: int) -> None:
            count = 0
            while time.monotonic() < until:
                review = creation(f"{prefix}-{number}-{count}")
                uid, count = review["request"]["object"]["metadata"]["uid"], count + 1
                if (await post(client, review))["allowed"]:
                    admitted.add(uid)

        await asyncio.gather(*(one_client(number) for number in range(8)), return_exceptions=True)


async def growth(admitted: set[str], count: int) -> None:
    """Wait until so many more were admitted."""
    wanted = len(admitted) + count
    async with asyncio.timeout(60):
        while len(admitted) < wanted:  # noqa: ASYNC110 - another task grows the set
            await asyncio.sleep(0.01)


def log_server_of(store: Path) -> int:
    """Return the process id of the service's nats-server."""
    address = server_files.read_address(store)
    assert address is not None
    return address.pid


async def test_what_was_acknowledged_survives_every_kill_of_the_service(tmp_path: Path) -> None:
    store, admitted = tmp_path / "store", set[str]()
    with running_service(store) as service:
        set_quota(store, 8_000 * 100_000)
        for round_ in range(3):
            task = asyncio.create_task(flood(service, f"r{round_}", admitted, 20.0))
            await growth(admitted, 20)
            service.kill()
            await task
            await asyncio.to_thread(service.start)
        assert service.stop() == 0
    assert admitted <= held_uids(store)
    assert used(store) == 8_000 * len(held_uids(store))
    verified = gpuledger("audit", "verify", "-o", "json", store=store)
    assert verified.json["ok"], verified
    live_digest = gpuledger("projection", "digest", "-o", "json", store=store).json
    compared = gpuledger("projection", "compare", "-o", "json", store=store)
    assert compared.status == 0, compared
    gpuledger("projection", "rebuild", store=store)
    assert gpuledger("projection", "digest", "-o", "json", store=store).json == live_digest


async def test_what_was_acknowledged_survives_every_kill_of_the_log_server(tmp_path: Path) -> None:
    store, admitted = tmp_path / "store", set[str]()
    with running_service(store) as service:
        set_quota(store, 8_000 * 100_000)
        task = asyncio.create_task(flood(service, "p", admitted, 15.0))
        for _ in range(3):
            await growth(admitted, 20)
            os.kill(log_server_of(store), signal.SIGKILL)
        await task
        await asyncio.to_thread(service.wait_for, "ledger", ok=True)
        async with service.client() as client:
            assert (await post(client, creation("after")))["allowed"]
        assert service.stop() == 0
    assert len(admitted) >= 60
    assert admitted <= held_uids(store)
    assert gpuledger("audit", "verify", "-o", "json", store=store).json["ok"]


async def test_a_denial_reads_like_a_sentence_with_numbers_and_a_remedy(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with running_service(store) as service:
        set_quota(store, 12_000)
        async with service.client() as client:
            assert (await post(client, creation("first")))["allowed"]
            denied = await post(client, creation("second"))
    assert not denied["allowed"]
    assert denied["status"]["code"] == 403
    assert denied["status"]["reason"] == "Forbidden"
    message = denied["status"]["message"]
    for piece in (
        "namespace team has too little GPU memory left: Pod second would need 8000 MiB,",
        'quota "main" allows 12000, 8000 are used.',
        "Try again when 4000 MiB are released: at most 4000 MiB now.",
        "Used by: pods/first 8000.",
        "[QuotaExceeded; decision ",
    ):
        assert piece in message


MANIFEST = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}


async def test_what_is_explained_is_of_the_namespace_in_the_query(tmp_path: Path) -> None:
    """The right to ask is checked for the namespace in the query."""
    store = tmp_path / "store"
    with running_service(store) as service:
        set_quota(store, 12_000)
        async with service.client() as client:
            foreign = await client.post("/v1/explain?namespace=other", json=creation("a"))
            own = await client.post("/v1/explain?namespace=team", json=creation("a"))
            missing = await client.post("/v1/explain?namespace=nowhere", json=MANIFEST)
    assert foreign.status_code == 400
    assert "of namespace 'team', which does not match the namespace 'other'" in foreign.text
    assert (missing.status_code, "'nowhere'" in missing.text) == (404, True)
    assert "12000" not in foreign.text
    assert own.status_code == 200
    assert own.json()["allowed"]


async def _explained(service: ServiceProcess, head: bytes, part: bytes) -> int:
    """Send a part of a request to explain and nothing more; return the status of the answer."""
    host = f"127.0.0.1:{service.port}"
    async with asyncio.timeout(20):
        reader, sender = await asyncio.open_connection(*host.split(":"), ssl=service.tls())
        sender.write(b"POST /v1/explain HTTP/1.1\r\nHost: " + host.encode() + b"\r\n" + head)
        sender.write(b"\r\n\r\n" + part)
        status = int((await reader.readline()).split()[1])
        # A client that has not sent all of it gets no second request on that connection.
        await reader.read()
    sender.transport.abort()
    return status


async def test_explaining_reads_no_endless_body_and_waits_for_no_late_one(tmp_path: Path) -> None:
    options = ("--admission-deadline-seconds=1", "--review-bytes-max=100000")
    with running_service(tmp_path / "store", *options) as service:
        assert await _explained(service, b"Content-Length: 100", b"{") == 408
        chunk = b"20000\r\n" + b" " * 0x20000 + b"\r\n"
        assert await _explained(service, b"Transfer-Encoding: chunked", chunk) == 413
        _, sender = await asyncio.open_connection("127.0.0.1", service.port, ssl=service.tls())
        sender.write(b"POST /v1/explain HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n")
        sender.transport.abort()
        assert service.stop() == 0
    assert "Traceback" not in (tmp_path / "store" / "service.log").read_text()


async def test_bodies_that_never_arrive_keep_no_question_out(tmp_path: Path) -> None:
    options = ("--admission-deadline-seconds=9", "--review-bytes-max=100000")
    with running_service(tmp_path / "store", *options) as service:
        head, part = b"Content-Length: 100000", b" " * 90_000
        stalled = [asyncio.create_task(_explained(service, head, part)) for _ in range(8)]
        async with service.client() as client:
            assert (await post(client, creation("p")))["allowed"], "reviews have bytes of their own"
            while not any(task.done() for task in stalled):  # noqa: ASYNC110 (there is no signal)
                await asyncio.sleep(0.05)
            large = creation("q")
            large["request"]["object"]["metadata"]["annotations"] = {"a": "x" * 80_000}
            asked = await client.post("/v1/explain?namespace=team", json=large)
        assert asked.status_code == 200
        statuses = await asyncio.gather(*stalled)
    assert 503 in statuses, "the body that had been arriving for longest gave way"
    assert set(statuses) <= {408, 503}


async def test_the_metrics_contain_review_durations_by_webhook(tmp_path: Path) -> None:
    with running_service(tmp_path / "store") as service:
        async with service.client() as client:
            await post(client, creation("p"))
            await client.post("/admission/mutate", content=b"no review")
            text = (await client.get("/metrics")).text
    for webhook in ("mutate", "validate"):
        assert f'gpuledger_admission_seconds_count{{webhook="{webhook}"}} 1.0' in text.splitlines()
    # The tables are what dashboards and alerts are checked against.
    served = {
        line.split()[2]: line.split()[3] for line in text.splitlines() if line.startswith("# TYPE")
    }
    listed = {metric.full_name: metric.kind.value for metric in (*METRICS, *USAGE_METRICS)}
    assert served == listed


async def _shown(client: httpx2.AsyncClient, path: str, text: str) -> None:
    """Wait until an answer of the read side holds a text."""
    while text not in (await client.get(path)).text:  # noqa: ASYNC110 (there is no signal)
        await asyncio.sleep(0.1)


async def test_a_projection_that_is_deleted_below_the_service_is_built_again(
    tmp_path: Path,
) -> None:
    store = tmp_path / "store"
    with running_service(store) as service:
        set_quota(store, 8_000 * 3)
        async with service.client() as client, asyncio.timeout(40):
            await _shown(client, "/v1/usage", "24000")
            for file in store.glob("projection.sqlite*"):
                file.unlink()
            assert (await post(client, creation("after")))["allowed"]
            await _shown(client, "/v1/holders", "pods/after")
        assert service.stop() == 0
    assert "Traceback" not in (store / "service.log").read_text()


async def test_the_service_ends_cleanly_within_its_time(tmp_path: Path) -> None:
    with running_service(tmp_path / "store") as service:
        assert service.stop() == 0
        assert server_files.read_address(service.store) is None


async def test_a_service_that_waits_for_its_store_ends_at_sigterm(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    lock = await acquire(tmp_path / "store" / "lock", 0.0, "nobody")
    service = ServiceProcess(tmp_path / "store")
    service.start(ready=False)
    try:
        async with asyncio.timeout(30):
            while not (service.store / "tls" / "ca.crt").exists():  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert service.stop() == 0
    finally:
        lock.release()
        service.kill()


async def test_what_a_killed_service_had_not_projected_yet_is_shown_all_the_same(
    tmp_path: Path,
) -> None:
    store, saved = tmp_path / "store", tmp_path / "saved"
    with running_service(store) as service:
        set_quota(store, 8_000 * 2)
        assert service.stop() == 0
        # SIGKILL leaves neither the projection nor the head file with the last reservation.
        shutil.copytree(store, saved, ignore=shutil.ignore_patterns("nats", "*.lock"))
        service.start()
        async with service.client() as client:
            assert (await post(client, creation("p")))["allowed"]
        assert service.stop() == 0
    shutil.copytree(saved, store, dirs_exist_ok=True)
    shown = gpuledger("holds", "-o", "json", store=store).json
    assert [hold["key"] for hold in shown] == ["pods/p"]


async def test_with_a_client_ca_a_review_without_a_certificate_is_not_judged(
    tmp_path: Path,
) -> None:
    theirs = ClientAuthority(tmp_path / "api-server")
    store = tmp_path / "store"
    with running_service(store, f"--client-ca={theirs.file}") as service:
        set_quota(store, 80_000)
        async with service.client() as stranger:
            forged = await stranger.post(VALIDATE, json=creation("forged"))
            assert forged.status_code == 403
            assert (await stranger.get("/healthz")).status_code == 200
        tls = service.tls()
        tls.load_cert_chain(theirs.issue((NameOID.COMMON_NAME, "kube-apiserver")))
        async with httpx2.AsyncClient(base_url=service.url, verify=tls) as api_server:
            assert (await post(api_server, creation("honest")))["allowed"]
    assert {hold["key"] for hold in gpuledger("holds", "-o", "json", store=store).json} == {
        "pods/honest"
    }


async def test_an_unreachable_log_is_a_clear_denial_and_not_ready(tmp_path: Path) -> None:
    service = ServiceProcess(tmp_path / "store", "--nats=nats://127.0.0.1:9")
    service.start(ready=False)
    try:
        reason = ledger_problem(service)
        assert "127.0.0.1:9" in reason
        async with service.client() as client:
            denied = await post(client, creation("p"))
        assert not denied["allowed"]
        assert str(Reason.LEDGER_UNAVAILABLE) in denied["status"]["message"]
    finally:
        assert service.stop() == 0


def test_vendors_that_are_charged_and_never_placed_are_named_at_the_start(tmp_path: Path) -> None:
    with running_service(tmp_path, "--vendors=nvidia,metax,hygon"):
        lines = (tmp_path / "service.log").read_text().splitlines()
    [told] = [line for line in lines if "vendors_counted_only" in line]
    assert "metax-sgpu" in told
    assert "hygon" not in told


def test_a_setting_of_an_earlier_version_is_warned_about_once(tmp_path: Path) -> None:
    with running_service(tmp_path, "--stamp-key-file=/nowhere/stamp.key"):
        lines = (tmp_path / "service.log").read_text().splitlines()
    told = [line for line in lines if "setting_ignored" in line]
    assert len(told) == 1
    assert "stamp_key_file" in told[0]
