"""Certificates of an installed release: expired by a moved clock, healed, and renewed under load.

The clock of the service runs 91 days behind at first, by libfaketime. So its certificate of ninety
days has expired for the API server, as after three months in which no replica ran.
"""

import asyncio
import base64
import json
import ssl
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography import x509

from ledger.runtime.tls import certificate_authority, server_certificate
from ledger.runtime.tls.certificate_authority import KeyPair
from tests.e2e.harness.cluster import Answer
from tests.e2e.harness.polling import eventually
from tests.e2e.install.rig.real_cluster import RealCluster
from tests.e2e.install.story.load import Load
from tests.e2e.install.story.timeline import Timeline
from tests.e2e.objects.pods import pod

pytestmark = [pytest.mark.e2e, pytest.mark.install, pytest.mark.timeout(420)]

SPACE: Final = "gpuledger"
HOST: Final = "gpuledger.gpuledger.svc"
CHART: Final = Path(__file__).parents[3] / "deploy" / "chart" / "gpuledger"
FAKETIME: Final = Path("/usr/lib/x86_64-linux-gnu/faketime")
SECRET: Final = f"/api/v1/namespaces/{SPACE}/secrets/gpuledger-tls"
PODS: Final = "/api/v1/namespaces/default/pods?dryRun=All"
RATE: Final = 5.0
SOON: Final = 90.0


def clock_behind(days: int) -> list[str]:
    """Return the values by which the service's clock runs behind."""
    variables = {
        "LD_PRELOAD": "/faketime/libfaketime.so.1",
        "FAKETIME": f"-{days}d",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    values: dict[str, list[dict[str, Any]]] = {
        "extraEnv": [{"name": name, "value": variables[name]} for name in variables],
        "extraVolumes": [{"name": "faketime", "hostPath": {"path": str(FAKETIME)}}],
        "extraVolumeMounts": [{"name": "faketime", "mountPath": "/faketime", "readOnly": True}],
    }
    return [f"--set-json={name}={json.dumps(value)}" for name, value in values.items()]


class Certificates:
    """The certificate of a release: in its Secret, and as its replicas serve it."""

    def __init__(self, cluster: RealCluster) -> None:
        self._cluster = cluster

    def helm(self, verb: str, *values: str) -> None:
        arguments = ("--set=cluster=east-1", f"--namespace={SPACE}", "--wait", *values)
        self._cluster.helm(verb, "gpuledger", str(CHART), *arguments)

    async def secret(self) -> dict[str, bytes]:
        async with self._cluster.connected() as admin:
            data = (await admin.must("GET", SECRET))["data"]
        return {key: base64.b64decode(text) for key, text in data.items()}

    async def age(self, by: timedelta) -> x509.Certificate:
        """Replace the certificate by one of the same CA that was made so long ago."""
        held = await self.secret()
        issuer = KeyPair(held["ca.crt"], held["ca.key"])
        issued = certificate_authority.issue(issuer, (HOST,), server_certificate.utc_now() - by)
        new = {"tls.crt": issued.certificate, "tls.key": issued.key}
        encoded = {key: base64.b64encode(new[key]).decode() for key in new}
        async with self._cluster.connected() as admin:
            assert (await admin.patch(SECRET, {"data": encoded})).status == 200
        return x509.load_pem_x509_certificate(issued.certificate)

    def served(self) -> set[bytes]:
        """Return the certificates, PEM, that the replicas serve now."""
        addresses = [
            pod["status"]["podIP"]
            for pod in self._cluster.pods(SPACE)
            if pod["metadata"]["labels"].get("app.kubernetes.io/component") == "service"
            and "deletionTimestamp" not in pod["metadata"]
        ]
        assert len(addresses) == 2, addresses
        return {
            ssl.get_server_certificate((address, 8443), timeout=SOON).encode()
            for address in addresses
        }

    async def renewed_after(self, by: timedelta) -> None:
        """Age the certificate, and wait until both replicas serve a new one."""
        aged = await self.age(by)

        async def is_renewed() -> bool:
            stored = x509.load_pem_x509_certificate((await self.secret())["tls.crt"])
            shown = {x509.load_pem_x509_certificate(pem) for pem in self.served()}
            assert aged not in shown, "no replica serves a certificate that is due"
            return shown == {stored}

        await eventually(is_renewed, bool, within=SOON, what="both serve the renewed certificate")

    def answer(self, status: int) -> Answer:
        """Wait for an answer to a dry run of a pod that requests cards, and return it."""

        async def wait() -> Answer:
            async with self._cluster.connected() as admin:
                return await eventually(
                    lambda: admin.ask("POST", PODS, pod("probe")),
                    lambda answer: answer.status == status,
                    within=SOON,
                    what=f"a pod with cards is answered {status}",
                )

        return asyncio.run(wait())


@pytest.fixture
def certificates(real_cluster: RealCluster, product_images: list[Path]) -> Certificates:
    if not (FAKETIME / "libfaketime.so.1").is_file():
        pytest.skip("libfaketime is not installed (apt-get install libfaketime): no clock moved")
    for archive in product_images:
        real_cluster.import_image(archive)
    return Certificates(real_cluster)


def test_an_expired_certificate_heals_and_a_due_one_is_renewed_unnoticed(
    real_cluster: RealCluster, certificates: Certificates
) -> None:
    timeline = Timeline()
    with timeline.step("helm install with a clock that is 91 days behind"):
        certificates.helm("install", "--create-namespace", *clock_behind(91))
    with timeline.step("the API server refuses pods with cards: the certificate has expired"):
        refused = certificates.answer(500)
    timeline.line(refused.message[-160:])
    assert "certificate has expired" in refused.message
    authority = asyncio.run(certificates.secret())["ca.crt"]
    with timeline.step("helm upgrade with the right clock"):
        certificates.helm("upgrade")
    with timeline.step("pods with cards are allowed again, without a hand"):
        certificates.answer(201)
    assert asyncio.run(certificates.secret())["ca.crt"] == authority
    load = Load(real_cluster, RATE)
    with load.running(), timeline.step("a certificate that is due is renewed, and both serve it"):
        asyncio.run(certificates.renewed_after(timedelta(days=61)))
    with load.running(), timeline.step("an expired one in the Secret is replaced, never served"):
        asyncio.run(certificates.renewed_after(timedelta(days=120)))
    timeline.line(load.summary())
    assert load.refusals == []
