"""Two replicas that share a certificate in a Secret, and register a Service with its CA.

Both run as processes below a real API server, on one log. No Service forwards here, so the API
server cannot reach them; the tests read the registration and the certificate of each replica.
"""

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import pytest_asyncio
from cryptography import x509
from support.servers.nats_servers import NatsServer

from ledger.runtime.tls import certificate_authority, server_certificate
from ledger.runtime.tls.certificate_authority import KeyPair
from ledger.runtime.tls.shared_bundle import AUTHORITY_RENEWAL
from tests.e2e.conftest import _connected
from tests.e2e.harness import own_control_plane
from tests.e2e.harness.authorization import grant
from tests.e2e.harness.cluster import Cluster
from tests.e2e.harness.controlplane import ADMIN, SERVICE, ControlPlane
from tests.e2e.harness.polling import eventually
from tests.e2e.harness.service import Service

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

SPACE: Final = "gpuledger-system"
SECRET: Final = f"/api/v1/namespaces/{SPACE}/secrets/gpuledger-tls"
NAME: Final = "blue-gpuledger"
HOST: Final = f"{NAME}.{SPACE}.svc"
KINDS: Final = ("mutating", "validating")
SOON: Final = 60.0


class Replicas(NamedTuple):
    """Both replicas, and the API server as its administrator sees it."""

    cluster: Cluster
    first: Service
    other: Service

    async def secret(self) -> dict[str, bytes]:
        """Return the decoded data of the Secret."""
        data = (await self.cluster.must("GET", SECRET))["data"]
        return {key: base64.b64decode(text) for key, text in data.items()}

    async def put(self, data: dict[str, bytes]) -> None:
        """Replace data of the Secret by hand."""
        encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
        assert (await self.cluster.patch(SECRET, {"data": encoded})).status == 200

    async def served(self) -> list[x509.Certificate]:
        """Return the certificates that both serve; their chain is checked against the Secret."""
        authorities = (await self.secret())["ca.crt"].decode()
        return [await served_by(replica, authorities) for replica in (self.first, self.other)]

    async def agreed(self) -> x509.Certificate:
        """Wait until both serve one certificate of the Secret's CA, and return it."""

        async def look() -> set[x509.Certificate]:
            try:
                return set(await self.served())
            except ssl.SSLCertVerificationError:
                return set()

        [shared] = await eventually(
            look, lambda shown: len(shown) == 1, within=SOON, what="both serve one certificate"
        )
        return shared

    async def bundles(self) -> set[bytes]:
        """Return the CAs of all registered webhooks."""
        return {
            base64.b64decode(webhook["clientConfig"]["caBundle"])
            for kind in KINDS
            for webhook in await self.webhooks(kind)
        }

    async def webhooks(self, kind: str) -> list[dict[str, Any]]:
        """Return the registered webhooks of a kind."""
        configuration = await self.cluster.must("GET", path_of(kind))
        return list(configuration["webhooks"])


def path_of(kind: str) -> str:
    return f"/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations/{NAME}"


async def served_by(replica: Service, authorities: str) -> x509.Certificate:
    """Connect as the API server would: by the name of the Service, with the registered CA."""
    host, _, port = replica.address.partition(":")
    context = ssl.create_default_context(cadata=authorities)
    async with asyncio.timeout(SOON):
        _, writer = await asyncio.open_connection(
            host, int(port), ssl=context, server_hostname=HOST
        )
    shown: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return x509.load_der_x509_certificate(shown)


@pytest.fixture(scope="module")
def plane(assets: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with own_control_plane.control_plane(
        assets, tmp_path_factory.mktemp("certificate-plane")
    ) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def replicas(
    plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Replicas]:
    """Start both replicas at the same moment, without a Secret."""
    folder = tmp_path_factory.mktemp("replicas")
    nats = NatsServer(folder / "nats")
    async with AsyncExitStack() as stack:
        await nats.start()
        stack.callback(nats.kill)
        cluster = await stack.enter_async_context(_connected(plane, ADMIN))
        await own_control_plane.prepare(cluster)
        await cluster.must("POST", "/api/v1/namespaces", {"metadata": {"name": SPACE}})
        await grant(cluster, SERVICE, rules(), "certificates")
        both = [
            Service(
                made(folder / name),
                plane.kubeconfig(SERVICE),
                nats=nats.url,
                tls_secret="gpuledger-tls",
                register_service=NAME,
                webhook_name=NAME,
                webhook_failure_policy="Ignore",
            )
            for name in ("one", "other")
        ]
        for replica in both:
            replica.start()
            stack.callback(replica.kill)
        for replica in both:
            await asyncio.to_thread(replica.wait_ready)
        yield Replicas(cluster, *both)


def made(folder: Path) -> Path:
    """Make a folder and return it."""
    folder.mkdir()
    return folder


def rules() -> list[dict[str, Any]]:
    """Return the rights of deploy/certificates and to configurations of the other name."""
    secrets: dict[str, Any] = {"apiGroups": [""], "resources": ["secrets"]}
    configurations = {
        "apiGroups": ["admissionregistration.k8s.io"],
        "resources": [f"{kind}webhookconfigurations" for kind in KINDS],
        "resourceNames": [NAME],
        "verbs": ["get", "patch"],
    }
    named = {"resourceNames": ["gpuledger-tls"], "verbs": ["get", "update"]}
    return [secrets | {"verbs": ["create"]}, secrets | named, configurations]


async def test_replicas_that_start_at_once_share_one_certificate(replicas: Replicas) -> None:
    first, other = await replicas.served()
    assert first == other
    assert first == x509.load_pem_x509_certificate((await replicas.secret())["tls.crt"])
    assert {HOST, f"{NAME}.{SPACE}", NAME, "localhost"} <= certificate_authority.names_of(first)


async def test_the_service_is_registered_with_the_shared_ca(replicas: Replicas) -> None:
    authorities = (await replicas.secret())["ca.crt"]
    assert await replicas.bundles() == {authorities}
    for kind in KINDS:
        for webhook in await replicas.webhooks(kind):
            service = webhook["clientConfig"]["service"]
            assert (service["namespace"], service["name"], service["port"]) == (SPACE, NAME, 443)
            assert webhook["failurePolicy"] == "Ignore"


@pytest.mark.parametrize("kind", KINDS)
async def test_an_edited_registration_is_repaired(replicas: Replicas, kind: str) -> None:
    right = await replicas.webhooks(kind)
    forged = {"url": "https://127.0.0.1:9", "service": None, "caBundle": right_sized()}
    change = {"webhooks": [{"name": right[0]["name"], "clientConfig": forged}]}
    strategic = {"Content-Type": "application/strategic-merge-patch+json"}
    await replicas.cluster.must("PATCH", path_of(kind), change, headers=strategic)
    assert (await replicas.webhooks(kind))[0] != right[0], "the edit took effect"
    await eventually(
        lambda: replicas.webhooks(kind),
        lambda webhooks: webhooks[0]["clientConfig"] == right[0]["clientConfig"],
        within=SOON,
        what="the registered address is repaired",
    )


def right_sized() -> str:
    """Return an ended CA of another service, as base64 of PEM; one that lasts stays for a while."""
    then = server_certificate.utc_now() - certificate_authority.AUTHORITY_LIFE * 1.1
    other = certificate_authority.new_authority(then)
    return base64.b64encode(other.certificate).decode()


async def test_a_deleted_registration_comes_again(replicas: Replicas) -> None:
    await replicas.cluster.must("DELETE", path_of("validating"))

    async def look() -> int:
        return (await replicas.cluster.ask("GET", path_of("validating"))).status

    await eventually(look, lambda status: status == 200, within=SOON, what="it is registered")


async def test_a_certificate_that_is_due_is_renewed_and_served_by_both(
    replicas: Replicas,
) -> None:
    held = await replicas.secret()
    then = server_certificate.utc_now() - certificate_authority.SERVER_LIFE * 0.9
    issued = certificate_authority.issue(KeyPair(held["ca.crt"], held["ca.key"]), (HOST,), then)
    [before, _] = await replicas.served()
    await replicas.put({"tls.crt": issued.certificate, "tls.key": issued.key})
    due = x509.load_pem_x509_certificate(issued.certificate)

    async def renewed() -> bool:
        first, other = await replicas.served()
        return first == other and first not in (before, due)

    await eventually(renewed, bool, within=SOON, what="both serve the renewed certificate")
    first, _ = await replicas.served()
    assert first == x509.load_pem_x509_certificate((await replicas.secret())["tls.crt"])
    assert (await replicas.secret())["ca.crt"] == held["ca.crt"]


async def test_the_next_ca_is_registered_beside_the_old_ones(replicas: Replicas) -> None:
    then = server_certificate.utc_now() - certificate_authority.AUTHORITY_LIFE
    old = certificate_authority.new_authority(then + AUTHORITY_RENEWAL / 2)
    issued = certificate_authority.issue(old, (HOST,), server_certificate.utc_now())
    before = (await replicas.secret())["ca.crt"]
    await replicas.put(
        {
            "ca.crt": old.certificate,
            "ca.key": old.key,
            "tls.crt": issued.certificate,
            "tls.key": issued.key,
        }
    )

    async def registered() -> set[bytes]:
        return await replicas.bundles()

    await eventually(
        registered,
        lambda bundles: (
            len(bundles) == 1 and all(is_pair(bundle, old, before) for bundle in bundles)
        ),
        within=SOON,
        what="old and next CA are registered beside the one before",
    )
    shared = await replicas.agreed()
    [signer, _] = x509.load_pem_x509_certificates((await replicas.secret())["ca.crt"])
    assert certificate_authority.is_issued_by(signer, shared), "the old CA signs for another day"


def is_pair(bundle: bytes, old: KeyPair, before: bytes) -> bool:
    """Return whether the old and the next CA are there, beside that of the tests before."""
    return old.certificate in bundle and before in bundle and bundle.count(b"BEGIN CERT") == 3


async def test_a_deleted_secret_is_made_again_with_the_same_ca(replicas: Replicas) -> None:
    before = await replicas.secret()
    await replicas.cluster.must("DELETE", SECRET)

    async def look() -> int:
        return (await replicas.cluster.ask("GET", SECRET)).status

    await eventually(look, lambda status: status == 200, within=SOON, what="the Secret exists")
    assert await replicas.secret() == before


async def test_readiness_warns_while_the_secret_cannot_be_used(replicas: Replicas) -> None:
    held = await replicas.secret()
    await replicas.put({"ca.key": b"no PEM"})

    async def look() -> tuple[bool, str]:
        return await replicas.first.check("certificate")

    ok, reason = await eventually(
        look, lambda check: bool(check[1]), within=SOON, what="readiness warns"
    )
    assert ok, "the replica goes on serving what it has"
    assert "gpuledger-tls, ca.key: holds no PEM private key" in reason
    await replicas.put({"ca.key": held["ca.key"]})
    await eventually(look, lambda check: not check[1], within=SOON, what="the warning ends")
