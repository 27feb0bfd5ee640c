"""Kubeconfig files: read as kubectl reads them, merged, and one context of them.

kubernetes-asyncio reads kubeconfigs, too, but its import takes 1.7 s of processor time. It neither
merges lists of files nor shows the prompts of exec plugins.

Of several files the first one counts for each context, cluster and user, and for the current
context. Relative paths are relative to the folder of their file.
"""

import base64
import binascii
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from gpuledger.cli.exit_codes import CommandError, Exit

FILE_BYTES_MAX: Final = 4 * 1024 * 1024
"""Largest kubeconfig that is read."""

VARIABLE: Final = "KUBECONFIG"


class ExecPlugin(
    msgspec.Struct,
    rename={
        "api_version": "apiVersion",
        "install_hint": "installHint",
        "provide_cluster_info": "provideClusterInfo",
        "interactive_mode": "interactiveMode",
    },
):
    """A credential plugin; `command` is absolute if the file gives a path."""

    command: str
    api_version: str
    args: list[str] | None = None
    env: list[dict[str, str]] | None = None
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = "IfAvailable"


class ClusterAccess(msgspec.Struct, rename="kebab"):
    """How to reach an API server."""

    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""
    extensions: list[dict[str, Any]] | None = None


class UserAccess(
    msgspec.Struct,
    rename={
        "client_certificate": "client-certificate",
        "client_certificate_data": "client-certificate-data",
        "client_key": "client-key",
        "client_key_data": "client-key-data",
        "token_file": "tokenFile",
        "impersonate": "as",
        "impersonate_uid": "as-uid",
        "impersonate_groups": "as-groups",
        "impersonate_extra": "as-user-extra",
        "auth_provider": "auth-provider",
        "plugin": "exec",
    },
):
    """How a user authenticates."""

    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = ""
    username: str = ""
    password: str = ""
    impersonate: str = ""
    impersonate_uid: str = ""
    impersonate_groups: list[str] | None = None
    impersonate_extra: dict[str, list[str]] | None = None
    auth_provider: dict[str, Any] | None = None
    plugin: ExecPlugin | None = None


class ContextEntry(msgspec.Struct):
    """A context of a kubeconfig."""

    cluster: str = ""
    user: str = ""
    namespace: str = ""


class NamedCluster(msgspec.Struct):
    """An entry of the list of clusters."""

    name: str
    cluster: ClusterAccess | None = None


class NamedUser(msgspec.Struct):
    """An entry of the list of users."""

    name: str
    user: UserAccess | None = None


class NamedContext(msgspec.Struct):
    """An entry of the list of contexts."""

    name: str
    context: ContextEntry | None = None


class KubeConfig(msgspec.Struct, rename={"current_context": "current-context"}):
    """A kubeconfig file, or several merged ones."""

    clusters: list[NamedCluster] | None = None
    users: list[NamedUser] | None = None
    contexts: list[NamedContext] | None = None
    current_context: str = ""


class KubeContext(msgspec.Struct):
    """A context with its cluster and user; `origin` describes it in messages."""

    origin: str
    cluster: ClusterAccess
    user: UserAccess
    namespace: str = "default"


def paths_of(given: str, environment: Mapping[str, str]) -> list[Path]:
    """Return the files to read: the given one, those of KUBECONFIG, or ~/.kube/config."""
    if given:
        return [Path(given).expanduser()]
    listed = [Path(path) for path in environment.get(VARIABLE, "").split(os.pathsep) if path]
    return listed or [Path("~/.kube/config").expanduser()]


def load_context(paths: list[Path], name: str, *, given: bool) -> KubeContext:
    """Return a context of the files, the current one without a name.

    Missing files are left out, except a `given` one. Raises CommandError.
    """
    merged = KubeConfig(clusters=[], users=[], contexts=[])
    for path in paths:
        if given or path.exists():
            _merge(merged, _read(path))
    return _context_of(merged, name, ", ".join(map(str, paths)))


def _read(path: Path) -> KubeConfig:
    """Return the file with absolute paths. Raises CommandError."""
    try:
        with path.open("rb") as opened:
            content = opened.read(FILE_BYTES_MAX + 1)
        if len(content) > FILE_BYTES_MAX:
            raise ValueError(f"it has more than {FILE_BYTES_MAX} bytes")
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        # The loader is the safe one, in C where libyaml is there.
        document = yaml.load(content, Loader=loader) or {}
        config = msgspec.convert(document, KubeConfig)
    except OSError as error:
        raise _unusable(path, f"{error.strerror}; check the path") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise _unusable(path, "it is not YAML") from error
    except (ValueError, RecursionError) as error:
        raise _unusable(path, f"it is not a kubeconfig: {error}") from error
    _make_absolute(config, path.absolute().parent)
    return config


def _unusable(path: Path, reason: str) -> CommandError:
    return CommandError(Exit.USAGE, f"kubeconfig {path} cannot be used: {reason}")


def _make_absolute(config: KubeConfig, folder: Path) -> None:
    for entry in config.clusters or ():
        if entry.cluster is not None:
            _set_absolute(entry.cluster, ("certificate_authority",), folder)
    for user in config.users or ():
        if user.user is None:
            continue
        _set_absolute(user.user, ("client_certificate", "client_key", "token_file"), folder)
        plugin = user.user.plugin
        if plugin is not None and Path(plugin.command).name != plugin.command:
            _set_absolute(plugin, ("command",), folder)


def _set_absolute(entry: msgspec.Struct, fields: tuple[str, ...], folder: Path) -> None:
    for field in fields:
        if path := getattr(entry, field):
            setattr(entry, field, str(folder / path))


def _merge(into: KubeConfig, other: KubeConfig) -> None:
    into.current_context = into.current_context or other.current_context
    for field in ("clusters", "users", "contexts"):
        entries = getattr(into, field)
        known = {entry.name for entry in entries}
        entries += [entry for entry in getattr(other, field) or () if entry.name not in known]


def _context_of(config: KubeConfig, name: str, files: str) -> KubeContext:
    wanted = name or config.current_context
    contexts = {entry.name: entry.context for entry in config.contexts or ()}
    if not wanted:
        raise CommandError(
            Exit.USAGE,
            f"kubeconfig {files} has no current context: choose one,"
            " `kubectl config use-context NAME`, or name one with --context",
        )
    context = contexts.get(wanted)
    if context is None:
        known = ", ".join(sorted(contexts)) or "none"
        raise CommandError(
            Exit.USAGE,
            f"kubeconfig {files} has no context {wanted!r}, known are {known}: name one of these"
            " with --context",
        )
    clusters = {entry.name: entry.cluster for entry in config.clusters or ()}
    users = {entry.name: entry.user for entry in config.users or ()}
    cluster = clusters.get(context.cluster)
    if cluster is None or not cluster.server:
        raise CommandError(
            Exit.USAGE,
            f"kubeconfig {files}: cluster {context.cluster!r} of context {wanted!r} has no server:"
            " add it, or name another context with --context",
        )
    if context.user and context.user not in users:
        raise CommandError(
            Exit.USAGE,
            f"kubeconfig {files}: user {context.user!r} of context {wanted!r} is not there: add"
            " it, or name another context with --context",
        )
    return KubeContext(
        f"context {wanted} ({files})",
        cluster,
        users.get(context.user) or UserAccess(),
        context.namespace or "default",
    )


def decoded(field: str, text: str) -> bytes:
    """Return the content of a field in base64. Raises CommandError that names the field."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise CommandError(
            Exit.USAGE, f"{field} of the kubeconfig is not base64: {error}; copy it again"
        ) from error
