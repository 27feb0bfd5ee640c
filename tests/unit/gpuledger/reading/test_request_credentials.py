"""Credentials that change while a command runs, on a server that plays the aggregation layer."""

import json
import ssl
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from cryptography.x509.oid import NameOID
from support.servers.aggregator import TOKEN, Aggregator
from support.servers.tls_server import ClientAuthority

from gpuledger.cli.exit_codes import CommandError, Exit
from gpuledger.reading import request_credentials
from gpuledger.reading.ledger_queries import LedgerQueries
from gpuledger.reading.query_source import ledger_queries
from ledger.runtime.settings.setting_sources import load
from projections.queries.query_scope import QueryScope

NO_ROWS = {"Gpuledger-Api": "2", "Gpuledger-Position": "7", "Gpuledger-Head": "9"}
VERSION = "client.authentication.k8s.io/v1"
PAST, FUTURE = "2001-01-01T00:00:00Z", "2999-01-01T00:00:00Z"

PLUGIN = """
import json, pathlib, sys
answers = json.loads(pathlib.Path(sys.argv[1]).read_text())
runs = pathlib.Path(sys.argv[1] + ".runs")
runs.touch()
run = len(runs.read_text())
runs.write_text("x" * (run + 1))
status = answers[min(run, len(answers) - 1)]
if status is None:
    sys.exit(3)
print(json.dumps({"apiVersion": sys.argv[2], "kind": "ExecCredential", "status": status}))
"""
"""A plugin whose runs give one answer after the other, and the last one again and again."""


@pytest.fixture
def authority(tmp_path: Path) -> ClientAuthority:
    return ClientAuthority(tmp_path / "clients")


@pytest.fixture
async def layer(tmp_path: Path, authority: ClientAuthority) -> AsyncIterator[Aggregator]:
    layer = Aggregator(tmp_path, "https://unused", ssl.create_default_context())
    layer.reply(text="[]", headers=NO_ROWS)
    async with layer.running(clients=authority.file):
        yield layer


def of_user(layer: Aggregator, user: dict[str, Any]) -> dict[str, object]:
    """Return the options for a kubeconfig with a user."""
    path = layer.authority.with_name("config")
    cluster = {"server": layer.url, "certificate-authority": str(layer.authority)}
    content = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(json.dumps(content))
    return {"kubeconfig": str(path)}


def of_plugin(layer: Aggregator, *answers: dict[str, str] | None) -> dict[str, object]:
    file = layer.authority.with_name("answers")
    file.write_text(json.dumps(answers))
    arguments = ["-c", PLUGIN, str(file), VERSION]
    plugin = {"command": sys.executable, "apiVersion": VERSION, "args": arguments}
    return of_user(layer, {"exec": plugin})


def runs(layer: Aggregator) -> int:
    return len(layer.authority.with_name("answers.runs").read_text())


def sent(layer: Aggregator) -> list[str]:
    """Return the tokens of all requests."""
    return [request.headers["Authorization"].partition(" ")[2] for request in layer.requests]


async def asked(queries: LedgerQueries) -> int:
    return (await queries.usage(QueryScope("n"))).head


async def refusal(queries: LedgerQueries) -> CommandError:
    with pytest.raises(CommandError) as refused:
        await asked(queries)
    return refused.value


@pytest.fixture(params=["kubeconfig", "service"])
def token(layer: Aggregator, request: pytest.FixtureRequest) -> tuple[Path, dict[str, object]]:
    """A file with a token, and the options that name it."""
    file = layer.authority.with_name("token")
    file.write_text(TOKEN)
    if request.param == "kubeconfig":
        return file, of_user(layer, {"tokenFile": str(file)})
    options = {"server": layer.url, "ca_file": str(layer.authority), "token_file": str(file)}
    return file, {**options}


async def test_a_token_file_is_read_again_each_minute(
    layer: Aggregator,
    token: tuple[Path, dict[str, object]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file, options = token
    async with ledger_queries(load(options, {})) as queries:
        await asked(queries)
        file.write_text("other")
        await asked(queries)
        monkeypatch.setattr(request_credentials, "TOKEN_FILE_SECONDS", 0.0)
        assert (await refusal(queries)).status is Exit.DENIED
        file.unlink()
        await refusal(queries)
        file.write_text(TOKEN)
        await asked(queries)
    assert sent(layer) == [TOKEN, TOKEN, "other", "other", TOKEN]


async def test_a_token_file_is_read_again_after_a_refusal(
    layer: Aggregator, token: tuple[Path, dict[str, object]]
) -> None:
    file, options = token
    file.write_text("expired")
    async with ledger_queries(load(options, {})) as queries:
        assert (await refusal(queries)).status is Exit.DENIED
        file.write_text(TOKEN)
        assert await asked(queries) == 9
    assert sent(layer) == ["expired", "expired", TOKEN]


async def test_a_plugin_runs_again_after_a_refusal(layer: Aggregator) -> None:
    options = of_plugin(layer, {"token": "expired"}, {"token": TOKEN})
    async with ledger_queries(load(options, {})) as queries:
        assert await asked(queries) == 9
        assert await asked(queries) == 9
    assert sent(layer) == ["expired", TOKEN, TOKEN]
    assert runs(layer) == 2


async def test_a_plugin_does_not_run_at_each_refusal(layer: Aggregator) -> None:
    options = of_plugin(layer, *({"token": f"wrong-{number}"} for number in range(9)))
    async with ledger_queries(load(options, {})) as queries:
        for _ in range(3):
            assert "log in again" in str(await refusal(queries))
        assert sent(layer) == ["wrong-0", "wrong-1", "wrong-1", "wrong-1"]
    assert runs(layer) == 2


async def test_a_plugin_runs_again_when_its_credential_expires(layer: Aggregator) -> None:
    options = of_plugin(
        layer,
        {"token": "expired", "expirationTimestamp": PAST},
        {"token": TOKEN, "expirationTimestamp": FUTURE},
    )
    async with ledger_queries(load(options, {})) as queries:
        for _ in range(2):
            assert await asked(queries) == 9
    assert sent(layer) == [TOKEN, TOKEN]
    assert runs(layer) == 2


async def test_a_plugin_pauses_when_all_its_credentials_are_expired(layer: Aggregator) -> None:
    options = of_plugin(layer, {"token": TOKEN, "expirationTimestamp": PAST})
    async with ledger_queries(load(options, {})) as queries:
        for _ in range(3):
            assert await asked(queries) == 9
    assert runs(layer) == 2


async def test_a_plugin_that_fails_later_is_named_and_pauses(layer: Aggregator) -> None:
    options = of_plugin(layer, {"token": TOKEN, "expirationTimestamp": PAST}, None)
    async with ledger_queries(load(options, {})) as queries:
        assert "credential plugin" in str(await refusal(queries))
        assert await asked(queries) == 9
    assert runs(layer) == 2


async def test_a_renewed_certificate_is_presented(
    layer: Aggregator, authority: ClientAuthority
) -> None:
    def issued(name: str) -> dict[str, str]:
        pem = Path(authority.issue((NameOID.COMMON_NAME, name))).read_text()
        cut = pem.index("-----BEGIN PRIVATE")
        return {"clientCertificateData": pem[:cut], "clientKeyData": pem[cut:]}

    seen: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        assert request.transport is not None
        ((_, name),) = request.transport.get_extra_info("peercert")["subject"][-1]
        seen.append(name)
        status = 401 if len(seen) == 2 else 200
        return web.Response(status=status, text="[]", headers=NO_ROWS)

    layer.handle = answer
    options = of_plugin(layer, issued("alice"), issued("bob"))
    async with ledger_queries(load(options, {})) as queries:
        for _ in range(2):
            assert await asked(queries) == 9
    assert seen == ["alice", "alice", "bob"]
