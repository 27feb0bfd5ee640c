"""Exec plugins: requests, credentials, and the end of plugins that fail or hang."""

import asyncio
import json
import signal
import sys
from typing import Any

import pytest

from gpuledger.cli.exit_codes import CommandError, Exit
from gpuledger.reading import exec_credential
from gpuledger.reading.exec_credential import credential_of
from gpuledger.reading.kubeconfig_files import ClusterAccess, ExecPlugin

V1 = "client.authentication.k8s.io/v1"
CLUSTER = ClusterAccess(
    "https://api",
    certificate_authority_data="Y2E=",
    extensions=[{"name": "client.authentication.k8s.io/exec", "extension": {"audience": "x"}}],
)


def plugin(script: str, **more: Any) -> ExecPlugin:
    """Return a plugin that is a Python script."""
    return ExecPlugin(sys.executable, V1, args=["-c", script], **more)


def writing(status: Any, version: str = V1, kind: str = "ExecCredential") -> str:
    answer = json.dumps({"apiVersion": version, "kind": kind, "status": status})
    return f"print({answer!r})"


async def test_a_token_is_returned() -> None:
    assert (await credential_of(plugin(writing({"token": "t"})), CLUSTER)).token == "t"


async def test_a_plugin_that_needs_a_terminal_is_not_renewed() -> None:
    asked = plugin(writing({"token": "t"}), interactive_mode="Always")
    with pytest.raises(CommandError, match="start the command again"):
        await credential_of(asked, CLUSTER, prompts=False)


async def test_a_plugin_gets_its_environment_and_the_request() -> None:
    script = (
        "import os, json; info = json.loads(os.environ['KUBERNETES_EXEC_INFO']);"
        "token = json.dumps([os.environ['EXTRA'], info['kind'], info['spec']]);"
        f"answer = dict(apiVersion='{V1}', kind='ExecCredential', status=dict(token=token));"
        "print(json.dumps(answer))"
    )
    extra = [{"name": "EXTRA", "value": "more"}]
    asked = plugin(script, env=extra, provide_cluster_info=True)
    extra_value, kind, spec = json.loads((await credential_of(asked, CLUSTER)).token)
    assert (extra_value, kind, spec["interactive"]) == ("more", "ExecCredential", False)
    assert spec["cluster"]["server"] == "https://api"
    assert spec["cluster"]["certificate-authority-data"] == "Y2E="
    assert spec["cluster"]["config"] == {"audience": "x"}


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (plugin("raise SystemExit(3)"), "it ended with 3"),
        (plugin("print('hello')"), "is not an ExecCredential"),
        (plugin(writing({"token": "t"}, kind="Pod")), "it wrote Pod"),
        (
            plugin(writing({"token": "t"}, version="client.authentication.k8s.io/v1beta1")),
            "v1beta1",
        ),
        (plugin(writing({})), "neither a token nor a certificate"),
        (plugin(writing({"token": "t", "clientKeyData": "k"})), "both are needed"),
        (plugin(writing({"token": "t", "expirationTimestamp": "soon"})), "not an ExecCredential"),
        (plugin("print('x' * 2_000_000)"), "more than 1048576 bytes"),
        (plugin("", interactive_mode="Always"), "it needs a terminal"),
        (ExecPlugin("login", "client.authentication.k8s.io/v1alpha1"), "is none of"),
        (
            ExecPlugin("no-such-login", V1, install_hint="Get it at example.com"),
            "install it, or check PATH. Get it at example.com",
        ),
    ],
)
async def test_a_failed_plugin_is_named_with_a_remedy(asked: ExecPlugin, message: str) -> None:
    with pytest.raises(CommandError) as refused:
        await credential_of(asked, CLUSTER)
    assert message in str(refused.value)
    assert f"credential plugin {asked.command}" in str(refused.value)
    assert refused.value.status is Exit.UNREACHABLE


async def test_a_hanging_plugin_is_killed_at_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[asyncio.subprocess.Process] = []
    start = asyncio.create_subprocess_exec

    async def recorded(*arguments: Any, **more: Any) -> asyncio.subprocess.Process:
        started.append(await start(*arguments, **more))
        return started[0]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", recorded)
    async with asyncio.timeout(20):
        with pytest.raises(CommandError, match=r"did not end within 0\.3 s"):
            await credential_of(plugin("import time; time.sleep(30)"), CLUSTER, seconds=0.3)
    assert started[0].returncode == -signal.SIGKILL


def test_the_deadline_leaves_time_to_log_in() -> None:
    assert 60 <= exec_credential.PLUGIN_SECONDS <= 300
