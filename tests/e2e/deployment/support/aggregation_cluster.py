"""A control plane with an aggregation layer, its certificates, and the APIService of the product.

A Service of the type ExternalName leads the API server to the port of a process on this machine.
"""

import itertools
import json
import ssl
from pathlib import Path
from typing import Any, Final

import aiohttp
from cryptography.x509.oid import NameOID
from support.servers.tls_server import ClientAuthority

from tests.e2e.harness.cluster import Answer, Cluster, Manifest
from tests.e2e.harness.controlplane import ControlPlane
from tests.e2e.harness.polling import eventually

SPACE: Final = "gpuledger-system"
SERVICE_NAME: Final = "gpuledger"
HOST: Final = f"{SERVICE_NAME}.{SPACE}.svc"
GROUP: Final = "query.gpuledger.io"
ROOT: Final = f"/apis/{GROUP}/v1"
API_SERVICE: Final = f"/apis/apiregistration.k8s.io/v1/apiservices/v1.{GROUP}"
CONFIG_MAP: Final = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
PROXY: Final = "front-proxy-client"
SOON: Final = 40.0
REQUEST_SECONDS: Final = 20.0

_NUMBERS: Final = itertools.count()

RIGHTS: Final[dict[tuple[str, str, str], tuple[str, ...]]] = {
    ("", "configmaps", "extension-apiserver-authentication"): ("get",),
    ("apiregistration.k8s.io", "apiservices", f"v1.{GROUP}"): ("get", "patch"),
}
"""The rights that the chart adds for the aggregated API, here in all namespaces."""


class Authority:
    """A CA of clients, with one file for each certificate."""

    def __init__(self, folder: Path) -> None:
        self._made, self._folder = ClientAuthority(folder), folder
        self.file = self._made.file
        self.pem = Path(self.file).read_text()

    def issue(self, name: str) -> str:
        """Return the file with the certificate and the key of a name."""
        made = Path(self._made.issue((NameOID.COMMON_NAME, name)))
        return str(made.rename(self._folder / f"{name}-{next(_NUMBERS)}.pem"))


class Certificates:
    """The CAs of the front proxy and of users, and certificates of both."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.proxies = Authority(folder / "proxies")
        self.users = Authority(folder / "users")
        self.proxy = self.proxies.issue(PROXY)

    def user(self, name: str) -> str:
        """Return the file with a user's certificate and key."""
        return self.users.issue(name)

    def flags(self) -> list[str]:
        """Return the flags of an API server with an aggregation layer."""
        return [
            f"--client-ca-file={self.users.file}",
            f"--requestheader-client-ca-file={self.proxies.file}",
            f"--requestheader-allowed-names={PROXY}",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-uid-headers=X-Remote-Uid",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--proxy-client-cert-file={self.proxy}",
            f"--proxy-client-key-file={self.proxy}",
        ]


async def register(cluster: Cluster, port: int) -> None:
    """Create Service and APIService as the chart does, without a CA."""
    await cluster.must("POST", "/api/v1/namespaces", _named("v1", "Namespace", SPACE))
    service = _named("v1", "Service", SERVICE_NAME)
    service["spec"] = {"type": "ExternalName", "externalName": "localhost"}
    await cluster.must("POST", f"/api/v1/namespaces/{SPACE}/services", service)
    api_service = _named("apiregistration.k8s.io/v1", "APIService", f"v1.{GROUP}")
    api_service["spec"] = {
        "group": GROUP,
        "version": "v1",
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
        "service": {"namespace": SPACE, "name": SERVICE_NAME, "port": port},
    }
    await cluster.must("POST", API_SERVICE.rpartition("/")[0], api_service)


async def available(cluster: Cluster, *, wanted: str = "True") -> Manifest:
    """Wait for the condition Available of the APIService and return it."""

    async def look() -> Manifest:
        answer = await cluster.must("GET", API_SERVICE)
        conditions = answer.get("status", {}).get("conditions", [])
        return next((each for each in conditions if each["type"] == "Available"), {})

    return await eventually(
        look,
        lambda condition: condition.get("status") == wanted,
        within=SOON,
        what=f"the APIService is Available={wanted}",
    )


def kubeconfig(plane: ControlPlane, certificate: str, file: Path) -> Path:
    """Write a kubeconfig with a user's certificate."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "user"}}],
        "clusters": [
            {
                "name": "test",
                "cluster": {"server": plane.url, "certificate-authority": str(plane.ca)},
            }
        ],
        "users": [
            {
                "name": "user",
                "user": {"client-certificate": certificate, "client-key": certificate},
            }
        ],
    }
    file.write_text(json.dumps(config))
    return file


class Laptop:
    """A user with a certificate, at the API server."""

    def __init__(self, plane: ControlPlane, certificate: str) -> None:
        self._context = ssl.create_default_context(cafile=str(plane.ca))
        self._context.load_cert_chain(certificate)
        self._url = plane.url

    async def ask(
        self, path: str, body: Any = None, *, method: str = "GET", **headers: str
    ) -> Answer:
        """Send a request; `headers` have underscores for dashes."""
        sent = {name.replace("_", "-"): headers[name] for name in headers}
        return await request(method, self._url + path, self._context, sent, body)


async def request(
    method: str, url: str, context: ssl.SSLContext, headers: dict[str, str], body: Any = None
) -> Answer:
    """Send a request on a connection of its own."""
    connector = aiohttp.TCPConnector(ssl=context, force_close=True)
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.request(
            method,
            url,
            json=body,
            headers=headers,
            timeout=aiohttp.ClientTimeout(total=REQUEST_SECONDS),
        ) as response,
    ):
        return Answer(response.status, await response.json(content_type=None))


def _named(version: str, kind: str, name: str) -> Manifest:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}}
