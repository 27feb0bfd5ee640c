"""Cluster credentials: the address of the API server, and the client's authentication.

kubernetes-asyncio reads the kubeconfig or the pod's service account, runs exec plugins and tracks
the expiry of their credentials. `Credentials` refreshes them before requests, at most once a
minute, so that a rotated token is used without a restart.
"""

import asyncio
import importlib
import os
import ssl
import time
from pathlib import Path
from typing import Any, Final

import yaml

from ledger.kube.api.cluster_errors import Forbidden, NoCredentials

REFRESH_SECONDS: Final = 60.0
"""Maximum age of a token before a refresh, as in in-cluster clients."""

PLUGIN_SECONDS: Final = 20.0
"""Deadline of an exec plugin or token endpoint."""


class Credentials:
    """The loaded configuration of one cluster."""

    def __init__(self, configuration: Any, loader: Any, *, source: str) -> None:
        self._configuration = configuration
        self._loader = loader
        self._source = source
        self._refreshed = time.monotonic()

    @classmethod
    async def load(cls, kubeconfig: Path | None) -> "Credentials":
        """Load a kubeconfig file, or with None the service account of this process's pod.

        Raises NoCredentials, which names the file, if there are no usable credentials.
        """
        # The package imports a module per API type, which takes seconds. So it is imported only
        # for a cluster, and in a thread.
        package: Any = await asyncio.to_thread(importlib.import_module, "kubernetes_asyncio.config")
        client: Any = importlib.import_module("kubernetes_asyncio.client")
        configuration = client.Configuration()
        loader = None
        source = str(kubeconfig) if kubeconfig is not None else "the pod's service account"
        try:
            async with asyncio.timeout(PLUGIN_SECONDS):
                if kubeconfig is None:
                    _must_be_a_pod()
                    package.load_incluster_config(client_configuration=configuration)
                else:
                    await asyncio.to_thread(_check, kubeconfig)
                    loader = await package.load_kube_config(
                        config_file=str(kubeconfig),
                        client_configuration=configuration,
                        persist_config=False,
                    )
        except Exception as error:
            raise NoCredentials(source, _reason(error)) from error
        return cls(configuration, loader, source=source)

    @property
    def address(self) -> str:
        """The base URL of the API server, without a slash at the end."""
        return str(self._configuration.host).rstrip("/")

    @property
    def server_name(self) -> str | None:
        """The name in the server's certificate, if it differs from the host's name."""
        name: str | None = self._configuration.tls_server_name
        return name

    @property
    def proxy(self) -> str | None:
        """The URL of the proxy, None without one."""
        url: str | None = self._configuration.proxy
        return url

    def tls(self) -> ssl.SSLContext:
        """Make the TLS context of the configuration."""
        configuration = self._configuration
        context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
        if configuration.cert_file:
            context.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)
        if not configuration.verify_ssl:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    async def headers(self) -> dict[str, str]:
        """Return the headers that authenticate a request. Raises Forbidden."""
        try:
            async with asyncio.timeout(PLUGIN_SECONDS):
                await self._refresh()
                settings = await self._configuration.auth_settings()
        except Exception as error:
            raise Forbidden(f"no credentials from {self._source}: {_reason(error)}") from error
        token = settings.get("BearerToken", {}).get("value")
        return {"Authorization": str(token).strip()} if token else {}

    def distrust(self) -> None:
        """Refresh before the next request, because the server refused the credentials."""
        self._refreshed = -REFRESH_SECONDS

    async def _refresh(self) -> None:
        """Load a kubeconfig's credentials again if they are old.

        The service account has its own hook inside the configuration.
        """
        if self._loader is None or time.monotonic() - self._refreshed < REFRESH_SECONDS:
            return
        self._refreshed = time.monotonic()
        await self._loader.load_and_set(self._configuration)


def _must_be_a_pod() -> None:
    """Raise ValueError if no kubelet has set the address of the API server."""
    if not os.environ.get("KUBERNETES_SERVICE_HOST"):
        raise ValueError("this process does not run in a pod")


def _check(kubeconfig: Path) -> None:
    """Raise ValueError for an invalid kubeconfig, because the library's errors are less clear."""
    try:
        content = yaml.safe_load(kubeconfig.read_bytes())
    except OSError as error:
        raise ValueError(error.strerror) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError("it is not YAML") from error
    if not isinstance(content, dict) or not isinstance(content.get("clusters"), list):
        raise ValueError("it is not a kubeconfig: it has no list of clusters")
    if not content.get("current-context"):
        raise ValueError("it has no current-context: choose one, `kubectl config use-context NAME`")


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__
