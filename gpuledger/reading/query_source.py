"""Query source: the store, the service or the cluster from which a command reads.

Options of the command line decide first, then the environment and the settings file. Without any of
them the default store is read if it exists, else the cluster of the kubeconfig, as by kubectl.
"""

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from gpuledger.cli.command_wrapper import LEDGER
from gpuledger.cli.exit_codes import CommandError, Exit
from gpuledger.reading.ledger_queries import LedgerQueries
from ledger.runtime.settings import setting_texts
from ledger.runtime.settings.setting_sources import LoadedSettings
from ledger.runtime.settings.settings import Settings

if TYPE_CHECKING:
    from gpuledger.reading.kubeconfig_files import KubeContext
    from gpuledger.reading.request_credentials import RequestCredentials
    from gpuledger.reading.service_connection import ServiceConnection

COMMAND_LINE: Final = "command line"

STORE: Final = ("nats", "store_dir", "shard")
SERVICE: Final = ("server", "token_file", "ca_file")
CLUSTER: Final = ("context", "kubeconfig")
_FAMILIES: Final = (SERVICE, CLUSTER, STORE)
assert set(STORE) == set(LEDGER)


@asynccontextmanager
async def ledger_queries(
    loaded: LoadedSettings, *, of_store: Sequence[str] = ()
) -> AsyncIterator[LedgerQueries]:
    """Open the source of a command for the block.

    `of_store` are settings that a service has itself; giving them as options for one is an error.
    Raises CommandError.
    """
    family = chosen(loaded)
    if family is STORE:
        from gpuledger.reading.store_queries import StoreQueries

        yield StoreQueries(loaded.settings)
        return
    _refuse(loaded, of_store, family)
    from gpuledger.reading.http_queries import HttpQueries

    settings = loaded.settings
    context = _context(settings) if family is CLUSTER else None
    async with AsyncExitStack() as opened:

        async def connect() -> "ServiceConnection":
            if family is SERVICE:
                return await opened.enter_async_context(_to_service(settings))
            if context is None:
                raise CommandError(Exit.NOT_FOUND, _nothing(settings))
            return await opened.enter_async_context(await _to_cluster(context))

        namespace = context.namespace if context is not None else ""
        yield HttpQueries(connect, settings, default_namespace=namespace)


def chosen(loaded: LoadedSettings) -> tuple[str, ...]:
    """Return the settings of the chosen source. Raises CommandError for two sources."""
    options = [name for name, source in loaded.sources.items() if source == COMMAND_LINE]
    given = [name for family in _FAMILIES for name in family if name in options]
    first = [next((name for name in family if name in given), "") for family in _FAMILIES]
    named = [name for name in first if name]
    if len(named) > 1:
        shown = " and ".join(map(setting_texts.option_of, named[:2]))
        raise CommandError(Exit.USAGE, f"{shown} name two sources: give options of one of them")
    if named:
        return next(family for family in _FAMILIES if named[0] in family)
    return _of_settings(loaded)


def _of_settings(loaded: LoadedSettings) -> tuple[str, ...]:
    """Return the source of the environment and the file, else that of the defaults."""
    sources, settings = loaded.sources, loaded.settings
    store = next((name for name in ("store_dir", "nats") if name in sources), "")
    if settings.server and store:
        shown = " and ".join(f"{name} ({sources[name]})" for name in ("server", store))
        raise CommandError(
            Exit.USAGE,
            f"{shown} name two sources: keep one, or choose with --server or --store-dir",
        )
    if settings.server:
        return SERVICE
    # A service has a kubeconfig beside its store, so the store counts.
    if store:
        return STORE
    if settings.kubeconfig or settings.context:
        return CLUSTER
    return STORE if Path(settings.store_dir).exists() else CLUSTER


def _refuse(loaded: LoadedSettings, of_store: Sequence[str], family: tuple[str, ...]) -> None:
    for name in of_store:
        if loaded.sources.get(name) == COMMAND_LINE:
            option = setting_texts.option_of(name)
            source = "--server" if family is SERVICE else "the cluster of the kubeconfig"
            raise CommandError(
                Exit.USAGE,
                f"{option} is for a store, and {source} answers with its own setting: leave it"
                " out, or name a store with --store-dir",
            )


def _to_service(settings: Settings) -> "ServiceConnection":
    """Return the connection to the service of the setting server. Raises CommandError."""
    from gpuledger.reading import access_files
    from gpuledger.reading.service_connection import ServiceAddress, ServiceConnection
    from ledger.runtime.addresses import is_loopback

    if not settings.server:
        raise CommandError(
            Exit.USAGE, "--token-file and --ca-file are for a service: name it with --server"
        )
    url = settings.server.rstrip("/")
    parts = urlsplit(url)
    tls = None
    if parts.scheme == "https":
        authority = (
            access_files.content_of("ca_file", settings.ca_file) if settings.ca_file else b""
        )
        tls = access_files.trusting(f"ca_file = {settings.ca_file}", authority)
    elif not is_loopback(parts.hostname or ""):
        raise CommandError(
            Exit.USAGE, f"server = {url}: http shows the token to the network; give an https URL"
        )
    credentials = _credentials(settings)
    address = ServiceAddress(
        url,
        f"service {url}",
        "get a new token, such as by `kubectl create token`, and give it with --token-file or"
        " GPULEDGER_TOKEN",
    )
    return ServiceConnection(address, tls=tls, credentials=credentials)


def _credentials(settings: Settings) -> "RequestCredentials":
    """Return the credentials for the service of the setting server. Raises CommandError."""
    from gpuledger.reading.access_files import usable_token
    from gpuledger.reading.request_credentials import (
        FixedCredentials,
        TokenFileCredentials,
        bearer,
    )

    if settings.token_file:
        return TokenFileCredentials("token_file", settings.token_file)
    return FixedCredentials(bearer(usable_token("token", settings.token)) if settings.token else [])


def _context(settings: Settings) -> "KubeContext | None":
    """Return the context of the kubeconfig, or of this pod, None without both.

    Raises CommandError.
    """
    from gpuledger.reading import cluster_access, kubeconfig_files

    paths, given = kubeconfig_files.paths_of(settings.kubeconfig, os.environ), settings.kubeconfig
    if given or any(path.exists() for path in paths):
        return kubeconfig_files.load_context(paths, settings.context, given=bool(given))
    if settings.context:
        raise CommandError(
            Exit.USAGE,
            f"there is no context {settings.context!r}, because there is no kubeconfig at"
            f" {_joined(paths)}: name a file with --kubeconfig (KUBECONFIG), a service with"
            " --server, or leave --context (GPULEDGER_CONTEXT) out",
        )
    return cluster_access.context_of_pod(os.environ)


def _joined(paths: Sequence[Path]) -> str:
    return ", ".join(map(str, paths))


def _nothing(settings: Settings) -> str:
    from gpuledger.reading import kubeconfig_files

    places = _joined(kubeconfig_files.paths_of(settings.kubeconfig, os.environ))
    return (
        f"there is no store at {Path(settings.store_dir).absolute()}, and no kubeconfig at"
        f" {places}: start `gpuledger serve` there, or name another place with --store-dir"
        " (GPULEDGER_STORE_DIR) or --nats (GPULEDGER_NATS), a service with --server"
        " (GPULEDGER_SERVER), or a kubeconfig with --kubeconfig (KUBECONFIG)"
    )


async def _to_cluster(context: "KubeContext") -> "ServiceConnection":
    """Return the connection to the API server of a context. Raises CommandError."""
    from gpuledger.reading.cluster_access import access_of
    from gpuledger.reading.service_connection import ServiceAddress, ServiceConnection

    cluster = context.cluster
    url = cluster.server.rstrip("/")
    if not url.startswith("https://"):
        raise CommandError(
            Exit.USAGE, f"{context.origin}: server {url} is not an https URL: correct it"
        )
    tls, credentials, headers = await access_of(context)
    address = ServiceAddress(
        url,
        f"{context.origin} at {url}",
        "log in again, or check the user of that context with `kubectl auth whoami`",
        aggregated=True,
        server_name=cluster.tls_server_name or None,
        proxy=cluster.proxy_url or None,
    )
    return ServiceConnection(address, tls=tls, credentials=credentials, headers=headers)
