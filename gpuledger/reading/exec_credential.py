"""Exec credential: a token or a certificate from a plugin (client.authentication.k8s.io).

The plugin gets a terminal for its prompts if there is one, and writes its messages to standard
error. It is killed when it takes too long.
"""

import asyncio
import base64
import contextlib
import json
import os
import sys
from datetime import datetime
from typing import Annotated, Any, Final

import msgspec

from gpuledger.cli.exit_codes import CommandError, Exit
from gpuledger.reading.access_files import content_of
from gpuledger.reading.kubeconfig_files import ClusterAccess, ExecPlugin

GROUP: Final = "client.authentication.k8s.io"
VERSIONS: Final = (f"{GROUP}/v1", f"{GROUP}/v1beta1")

PLUGIN_SECONDS: Final = 120.0
"""Deadline of a plugin; a person may log in by a browser meanwhile."""

OUTPUT_BYTES_MAX: Final = 1024 * 1024
"""Largest output of a plugin."""

_ENVIRONMENT: Final = "KUBERNETES_EXEC_INFO"


class PluginCredential(msgspec.Struct, rename="camel"):
    """The status of an ExecCredential: a token, or a certificate and its key in PEM.

    Without an expiration it is used until it is refused.
    """

    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: Annotated[datetime, msgspec.Meta(tz=True)] | None = None


class _ExecCredential(msgspec.Struct, rename="camel"):
    api_version: str
    kind: str
    status: PluginCredential | None = None


async def credential_of(
    plugin: ExecPlugin,
    cluster: ClusterAccess,
    seconds: float = PLUGIN_SECONDS,
    *,
    prompts: bool = True,
) -> PluginCredential:
    """Run a plugin and return its credential. Raises CommandError that names the plugin.

    Without `prompts` it gets no terminal, because the command may draw on it.
    """
    interactive = _is_interactive(plugin, prompts=prompts)
    if plugin.api_version not in VERSIONS:
        raise _failed(
            plugin, f"its apiVersion {plugin.api_version!r} is none of {', '.join(VERSIONS)}"
        )
    added = {entry.get("name", ""): entry.get("value", "") for entry in plugin.env or ()}
    info = {_ENVIRONMENT: json.dumps(_request(plugin, cluster, interactive=interactive))}
    try:
        process = await asyncio.create_subprocess_exec(
            plugin.command,
            *(plugin.args or ()),
            env={**os.environ, **added, **info},
            stdin=None if interactive else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            limit=OUTPUT_BYTES_MAX,
        )
    except (OSError, ValueError) as error:
        hint = f". {plugin.install_hint.strip()}" if plugin.install_hint else ""
        reason = getattr(error, "strerror", None) or str(error)
        raise _failed(
            plugin, f"it cannot be run: {reason}; install it, or check PATH{hint}"
        ) from error
    output = await _output(plugin, process, seconds)
    return _read(plugin, output)


async def _output(plugin: ExecPlugin, process: asyncio.subprocess.Process, seconds: float) -> bytes:
    """Return the output of the plugin. Raises CommandError."""
    assert process.stdout is not None
    output = bytearray()
    try:
        async with asyncio.timeout(seconds):
            while piece := await process.stdout.read(65_536):
                output += piece
                if len(output) > OUTPUT_BYTES_MAX:
                    raise _failed(plugin, f"it wrote more than {OUTPUT_BYTES_MAX} bytes")
            status = await process.wait()
    except TimeoutError as error:
        raise _failed(
            plugin, f"it did not end within {seconds:g} s; run it by hand to see what it waits for"
        ) from error
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if status != 0:
        raise _failed(plugin, f"it ended with {status}; its message is above, or log in again")
    return bytes(output)


def _is_interactive(plugin: ExecPlugin, *, prompts: bool) -> bool:
    if plugin.interactive_mode == "Always" and not prompts:
        raise _failed(plugin, "it needs a terminal to log in again; start the command again")
    terminal = prompts and sys.stdin is not None and sys.stdin.isatty()
    if plugin.interactive_mode == "Always" and not terminal:
        raise _failed(plugin, "it needs a terminal; run the command in one")
    return terminal and plugin.interactive_mode != "Never"


def _request(plugin: ExecPlugin, cluster: ClusterAccess, *, interactive: bool) -> dict[str, Any]:
    spec: dict[str, Any] = {"interactive": interactive}
    if plugin.provide_cluster_info:
        spec["cluster"] = {
            "server": cluster.server,
            "tls-server-name": cluster.tls_server_name,
            "insecure-skip-tls-verify": cluster.insecure_skip_tls_verify,
            "certificate-authority-data": _authority(cluster),
            "proxy-url": cluster.proxy_url,
            "config": _own_extension(cluster),
        }
    return {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}


def _authority(cluster: ClusterAccess) -> str:
    """Return the CA in base64, also if the kubeconfig names a file. Raises CommandError."""
    if cluster.certificate_authority_data or not cluster.certificate_authority:
        return cluster.certificate_authority_data

    return base64.b64encode(
        content_of("certificate-authority", cluster.certificate_authority)
    ).decode()


def _own_extension(cluster: ClusterAccess) -> Any:
    """Return the kubeconfig's extension for plugins of this cluster, None without one."""
    extensions = cluster.extensions or ()
    wanted = f"{GROUP}/exec"
    return next(
        (entry.get("extension") for entry in extensions if entry.get("name") == wanted), None
    )


def _read(plugin: ExecPlugin, output: bytes) -> PluginCredential:
    try:
        answer = msgspec.json.decode(output, type=_ExecCredential)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise _failed(plugin, f"its output is not an ExecCredential: {error}") from error
    if (answer.kind, answer.api_version) != ("ExecCredential", plugin.api_version):
        raise _failed(
            plugin,
            f"it wrote {answer.kind} of {answer.api_version}, and the kubeconfig asks for"
            f" ExecCredential of {plugin.api_version}; correct apiVersion there",
        )
    status = answer.status or PluginCredential()
    if bool(status.client_certificate_data) != bool(status.client_key_data):
        raise _failed(plugin, "it wrote a certificate or a key, and both are needed")
    if not status.token and not status.client_certificate_data:
        raise _failed(plugin, "it wrote neither a token nor a certificate; log in again")
    return status


def _failed(plugin: ExecPlugin, reason: str) -> CommandError:
    return CommandError(Exit.UNREACHABLE, f"credential plugin {plugin.command}: {reason}")
