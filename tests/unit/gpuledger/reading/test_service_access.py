"""Access to a cluster and its refusals, on a real TLS server that plays the aggregation layer."""

import asyncio
import base64
import json
import socket
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from cryptography.x509.oid import NameOID
from support.servers.aggregator import TOKEN, Aggregator
from support.servers.tls_server import ClientAuthority

from gpuledger.cli.exit_codes import CommandError, Exit
from gpuledger.reading import paged_reads, service_connection
from gpuledger.reading.query_source import ledger_queries
from ledger.runtime.settings.setting_sources import load
from projections.queries.query_scope import QueryScope

HEADERS = {"Gpuledger-Api": "2", "Gpuledger-Position": "7", "Gpuledger-Head": "9"}
NO_ROWS: dict[str, Any] = {"text": "[]", "headers": HEADERS}


@pytest.fixture
def authority(tmp_path: Path) -> ClientAuthority:
    return ClientAuthority(tmp_path / "clients")


@pytest.fixture
async def layer(tmp_path: Path, authority: ClientAuthority) -> AsyncIterator[Aggregator]:
    layer = Aggregator(tmp_path, "https://unused", ssl.create_default_context())
    layer.reply(**NO_ROWS)
    async with layer.running(clients=authority.file):
        yield layer


def kubeconfig(layer: Aggregator, user: dict[str, Any], **cluster: Any) -> str:
    """Write a kubeconfig for the layer, and return its path."""
    path = layer.authority.with_name("config")
    given = {"certificate-authority": str(layer.authority)} | cluster
    content = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "n"}}],
        "clusters": [{"name": "c", "cluster": {"server": layer.url} | given}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(json.dumps(content))
    return str(path)


async def head(path: str, namespace: str = "n") -> int:
    """Ask for the usage of a namespace, and return the position of the projection."""
    async with ledger_queries(load({"kubeconfig": path}, {})) as queries:
        return (await queries.usage(QueryScope(namespace))).head


async def refusal(path: str) -> CommandError:
    with pytest.raises(CommandError) as refused:
        await head(path)
    return refused.value


def certificate(authority: ClientAuthority) -> tuple[bytes, bytes]:
    """Return a client certificate and its key."""
    pem = Path(authority.issue((NameOID.COMMON_NAME, "alice"))).read_bytes()
    cut = pem.index(b"-----BEGIN PRIVATE")
    return pem[:cut], pem[cut:]


async def test_a_token_is_sent_as_a_bearer_token(layer: Aggregator) -> None:
    assert await head(kubeconfig(layer, {"token": TOKEN})) == 9
    assert layer.requests[0].path == "/apis/query.gpuledger.io/v1/namespaces/n/usage"
    assert "namespace" not in layer.requests[0].query
    await head(kubeconfig(layer, {"token": TOKEN}), namespace="")
    assert layer.requests[1].path == "/apis/query.gpuledger.io/v1/usage"


async def test_a_token_file_counts_before_a_token(layer: Aggregator, tmp_path: Path) -> None:
    (tmp_path / "t").write_text(f"{TOKEN}\n")
    assert await head(kubeconfig(layer, {"token": "old", "tokenFile": "t"})) == 9


async def test_a_client_certificate_is_presented(
    layer: Aggregator, authority: ClientAuthority
) -> None:
    pair = [base64.b64encode(part).decode() for part in certificate(authority)]
    user = {"client-certificate-data": pair[0], "client-key-data": pair[1]}
    assert await head(kubeconfig(layer, user)) == 9
    assert "Authorization" not in layer.requests[0].headers
    path = authority.issue((NameOID.COMMON_NAME, "bob"))
    assert await head(kubeconfig(layer, {"client-certificate": path, "client-key": path})) == 9
    assert (await refusal(kubeconfig(layer, {}))).status is Exit.DENIED


@pytest.mark.parametrize("status", ["token", "certificate"])
async def test_a_plugin_gives_a_token_or_a_certificate(
    layer: Aggregator, authority: ClientAuthority, status: str
) -> None:
    pair = [part.decode() for part in certificate(authority)]
    given = {
        "token": {"token": TOKEN},
        "certificate": {"clientCertificateData": pair[0], "clientKeyData": pair[1]},
    }
    version = "client.authentication.k8s.io/v1"
    answer = {"apiVersion": version, "kind": "ExecCredential", "status": given[status]}
    args = ["-c", f"print({json.dumps(answer)!r})"]
    user = {"exec": {"command": sys.executable, "apiVersion": version, "args": args}}
    assert await head(kubeconfig(layer, user)) == 9


async def test_a_user_may_act_as_another(layer: Aggregator) -> None:
    user = {"token": TOKEN, "as": "bob", "as-groups": ["a", "b"], "as-user-extra": {"k": ["v"]}}
    await head(kubeconfig(layer, user))
    headers = layer.requests[0].headers
    assert headers["Impersonate-User"] == "bob"
    assert headers.getall("Impersonate-Group") == ["a", "b"]
    assert headers["Impersonate-Extra-k"] == "v"


async def test_the_server_is_verified_by_its_authority_and_name(layer: Aggregator) -> None:
    user = {"token": TOKEN}
    stranger = await refusal(kubeconfig(layer, user, **{"certificate-authority": ""}))
    assert (stranger.status, "TLS does not work" in str(stranger)) == (Exit.UNREACHABLE, True)
    renamed = await refusal(kubeconfig(layer, user, **{"tls-server-name": "other"}))
    assert "TLS does not work" in str(renamed)
    assert not layer.requests
    skipped = {"certificate-authority": "", "insecure-skip-tls-verify": True}
    assert await head(kubeconfig(layer, user, **skipped)) == 9


@asynccontextmanager
async def recording_proxy() -> AsyncIterator[tuple[str, list[bytes]]]:
    """Yield the address of a proxy that ends every connection, and the first lines that it got."""
    lines: list[bytes] = []

    async def end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines.append(await reader.readline())
        writer.close()

    async with await asyncio.start_server(end, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", lines


@pytest.mark.parametrize("source", ["kubeconfig", "environment"])
async def test_a_proxy_is_asked_for_the_server(
    layer: Aggregator, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    for name in ("HTTPS_PROXY", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    user = {"token": TOKEN}
    async with recording_proxy() as (url, lines):
        given = {"proxy-url": url} if source == "kubeconfig" else {}
        monkeypatch.setenv("https_proxy", "http://127.0.0.1:1" if given else url)
        away = await refusal(kubeconfig(layer, user, server="https://api.invalid", **given))
        assert away.status is Exit.UNREACHABLE
        assert set(lines) == {b"CONNECT api.invalid:443 HTTP/1.1\r\n"}
        if not given:
            asked = len(lines)
            assert await head(kubeconfig(layer, user)) == 9
            assert len(lines) == asked


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (404, "404 page not found"),
        (404, '{"kind": "Status", "message": "the server could not find the requested resource"}'),
        (403, '{"kind": "Status", "message": "usage is forbidden: User \\"u\\" cannot list it"}'),
        (503, "service unavailable"),
        (503, '{"kind": "Status", "message": "no endpoints available"}'),
    ],
)
async def test_the_remedy_is_named_when_the_aggregated_api_is_missing(
    layer: Aggregator, status: int, text: str
) -> None:
    layer.reply(status=status, text=text)
    path, file = kubeconfig(layer, {"token": TOKEN}), layer.authority.with_name("pod.json")
    file.write_text("{}")
    messages = [str(await refusal(path))]
    async with ledger_queries(load({"kubeconfig": path}, {})) as queries:
        for ask in (
            queries.cards(),
            queries.denials(QueryScope("n"), limit=9),
            queries.waiting(QueryScope("n")),
            queries.explain(str(file), "n", ""),
        ):
            with pytest.raises(CommandError) as refused:
                await ask
            messages.append(str(refused.value))
    for message in messages:
        assert "kubectl get apiservice v1.query.gpuledger.io" in message
        assert "aggregatedAPI.enabled=true" in message
        assert "with --server" in message


@pytest.mark.parametrize(
    ("reply", "status", "message"),
    [
        ({"status": 401}, Exit.DENIED, "log in again"),
        (
            {"status": 403, "text": '{"error": {"message": "you may not list usage"}}'},
            Exit.DENIED,
            "you may not list usage. A Role of that namespace",
        ),
        (
            {"status": 403, "text": '{"kind": "Status", "message": "usage is forbidden"}'},
            Exit.DENIED,
            "apiGroups: [query.gpuledger.io], resources: [usage], verbs: [list]",
        ),
        ({"status": 404, "text": "404 page not found"}, Exit.NOT_FOUND, "kubectl get apiservice"),
        (
            {"status": 404, "text": '{"error": {"message": "namespace n is not there"}}'},
            Exit.NOT_FOUND,
            "namespace n is not there",
        ),
        ({"status": 429}, Exit.NOT_READY, "try again"),
        ({"status": 503, "text": "service unavailable"}, Exit.UNREACHABLE, "get apiservice"),
        ({"status": 504}, Exit.NOT_READY, "try again"),
        ({"status": 500}, Exit.FAILED, "it answered 500"),
        ({"status": 302, "headers": {"Location": "https://evil"}}, Exit.FAILED, "answered 302"),
        ({"text": "<html>"}, Exit.FAILED, "cannot read"),
        ({"text": "{}"}, Exit.FAILED, "cannot read"),
        ({"text": '[{"quota": 1}]', "headers": HEADERS}, Exit.FAILED, "cannot read"),
        ({"text": "[]"}, Exit.FAILED, "without the header Gpuledger-Position"),
        ({"text": "[]", "headers": {"Gpuledger-Position": "x"}}, Exit.FAILED, "without the header"),
        ({"status": 400, "text": "[" * 100_000}, Exit.USAGE, "refused the request"),
        ({"status": 403, "text": '{"message": "\\u001b[31m\\nroot"}'}, Exit.DENIED, " [31m root"),
    ],
)
async def test_a_refusal_has_its_status_and_remedy(
    layer: Aggregator, reply: dict[str, Any], status: Exit, message: str
) -> None:
    layer.reply(**reply)
    refused = await refusal(kubeconfig(layer, {"token": TOKEN}))
    assert (refused.status, message in str(refused)) == (status, True), str(refused)
    assert str(refused).isprintable()
    assert len(layer.requests) == 1


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (
            {"status": 413, "text": '{"kind": "Status", "message": "the limit is 9 bytes"}'},
            "pod.json: the limit is 9 bytes",
        ),
        (
            {"status": 400, "text": '{"error": {"message": "is no kind", "field": "$.kind"}}'},
            "pod.json: $.kind: is no kind",
        ),
        ({"status": 413, "text": "<html>"}, "refused it with 413"),
    ],
)
async def test_a_refused_manifest_is_named_with_its_field(
    layer: Aggregator, tmp_path: Path, reply: dict[str, Any], message: str
) -> None:
    layer.reply(**reply)
    file = tmp_path / "pod.json"
    file.write_text("{}")
    path = kubeconfig(layer, {"token": TOKEN})
    async with ledger_queries(load({"kubeconfig": path}, {})) as queries:
        with pytest.raises(CommandError) as refused:
            await queries.fit(str(file), "n", "")
    assert (refused.value.status, str(refused.value).endswith(message)) == (Exit.USAGE, True)
    assert ": :" not in str(refused.value)


async def test_an_older_service_is_refused_where_it_would_ignore_a_parameter(
    layer: Aggregator,
) -> None:
    layer.reply(text="[]", headers=HEADERS | {"Gpuledger-Api": "1"})
    path = kubeconfig(layer, {"token": TOKEN})
    async with ledger_queries(load({"kubeconfig": path}, {})) as queries:
        await queries.denials(QueryScope("n"), since="2026-01-01", limit=9)
        with pytest.raises(CommandError, match="is older than this command"):
            await queries.denials(QueryScope("n"), until="2026-01-01", limit=9)


async def test_a_silent_server_ends_the_command_at_the_deadline(
    layer: Aggregator, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(_: web.Request) -> web.Response:
        await asyncio.sleep(1)
        return web.Response()

    layer.handle = silent
    monkeypatch.setattr(service_connection, "REQUEST_SECONDS", 0.3)
    refused = await refusal(kubeconfig(layer, {"token": TOKEN}))
    assert (refused.status, "within 0.3 s" in str(refused)) == (Exit.NOT_READY, True)


async def test_a_connection_that_is_not_made_ends_at_its_own_deadline(
    layer: Aggregator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_connection, "CONNECT_SECONDS", 0.2)
    # The kernel accepts the connection, and no server answers the TLS handshake.
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"https://127.0.0.1:{listening.getsockname()[1]}"
        refused = await refusal(kubeconfig(layer, {"token": TOKEN}, server=url))
    assert (refused.status, f"{url} cannot be reached" in str(refused)) == (Exit.UNREACHABLE, True)


@pytest.mark.parametrize(
    ("ask", "cursor", "fixed"),
    [
        (lambda queries: queries.holders(QueryScope("n")), "after", "at"),
        (lambda queries: queries.events(QueryScope("n"), limit=9), "after", "to"),
        (lambda queries: queries.denials(QueryScope("n"), limit=9), "before", ""),
    ],
)
async def test_later_pages_are_as_of_the_position_of_the_first(
    layer: Aggregator, ask: Any, cursor: str, fixed: str
) -> None:
    async def page(request: web.Request) -> web.Response:
        more = {} if cursor in request.query else {"Gpuledger-Next": "3.1"}
        return web.Response(text="[]", headers={**HEADERS, **more})

    layer.handle = page
    path = kubeconfig(layer, {"token": TOKEN})
    async with ledger_queries(load({"kubeconfig": path}, {})) as queries:
        await ask(queries)
    first, second = (request.query for request in layer.requests)
    assert cursor not in first
    assert second[cursor] == "3.1"
    assert not fixed or (fixed not in first and second[fixed] == "7")


async def test_a_server_without_a_last_page_ends_the_command(
    layer: Aggregator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paged_reads, "PAGES_MAX", 4)
    layer.reply(text="[]", headers=HEADERS | {"Gpuledger-Next": "same"})
    refused = await refusal(kubeconfig(layer, {"token": TOKEN}))
    assert len(layer.requests) == 4
    assert "more than 4 pages" in str(refused)


async def test_a_large_answer_is_not_read_to_its_end(
    layer: Aggregator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_connection, "BODY_BYTES_MAX", 1_000)
    layer.reply(text=" " * 2_000, headers=HEADERS)
    assert "more than 1000 bytes" in str(await refusal(kubeconfig(layer, {"token": TOKEN})))


async def test_a_server_that_is_away_is_named(layer: Aggregator) -> None:
    refused = await refusal(kubeconfig(layer, {"token": TOKEN}, server="https://127.0.0.1:1"))
    assert refused.status is Exit.UNREACHABLE
    assert "context c" in str(refused)
    assert "https://127.0.0.1:1 cannot be reached" in str(refused)
