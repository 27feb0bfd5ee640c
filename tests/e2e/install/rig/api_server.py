"""The control plane of a rig: ServiceAccount tokens, node identities, and the real kube-scheduler.

It has what the harness leaves out because the harness has no pods. The API server is reached at the
rig's bridge, and at the first address of the Service range through the rig's forwarding.
"""

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tests.e2e.harness.controlplane import READY_SECONDS, SCHEDULER, ControlPlane
from tests.e2e.harness.processes import Child
from tests.e2e.install.rig.network import ADDRESS, API_SERVER

PORT: Final = 6443
NODE_LOST_SECONDS: Final = 12
"""A node without heartbeats is lost after this time; 50 s by default."""

_NAMES: Final = (
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
    "localhost",
)
_VALID_BEFORE: Final = timedelta(days=400)
"""The certificate begins this long ago, because tests run a service whose clock is behind."""

_VALID_AFTER: Final = timedelta(days=400)


def node_user(node: str) -> str:
    """Return the user name of a kubelet."""
    return f"system:node:{node}"


class RigControlPlane(ControlPlane):
    """A control plane with everything that real nodes need."""

    def __init__(self, assets: Path, folder: Path, nodes: Sequence[str]) -> None:
        super().__init__(assets, folder)
        self._identities |= {node_user(node): "system:nodes" for node in nodes}
        self.url = f"https://{ADDRESS}:{PORT}"
        self.ca = folder / "certs" / "ca.crt"

    def start(self) -> None:
        """Start everything and return when the API server and the scheduler are ready."""
        super().start()
        try:
            self._start_scheduler()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End all processes at once: an API server waits for connections of nodes that are gone."""
        while self._children:
            self._children.pop().kill()

    def _write_credentials(self) -> None:
        super()._write_credentials()
        self.ca.parent.mkdir()
        _write_certificates(self.ca, self.ca.with_name("serving.pem"))

    def _run(self, program: str, *arguments: str) -> Child:
        if program == "kube-apiserver":
            arguments = (*filter(_is_kept, arguments), *self._api_server_arguments())
        if program == "kube-controller-manager":
            arguments = (
                *arguments,
                f"--root-ca-file={self.ca}",
                f"--node-monitor-grace-period={NODE_LOST_SECONDS}s",
                "--node-monitor-period=2s",
            )
        return super()._run(program, *arguments)

    def _api_server_arguments(self) -> list[str]:
        serving = self.ca.with_name("serving.pem")
        return [
            "--bind-address=0.0.0.0",
            f"--advertise-address={ADDRESS}",
            f"--tls-cert-file={serving}",
            f"--tls-private-key-file={serving}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--kubelet-preferred-address-types=InternalIP",
        ]

    def _start_scheduler(self) -> None:
        certificates = self.folder / "scheduler"
        child = self._run(
            "kube-scheduler",
            f"--kubeconfig={self.kubeconfig(SCHEDULER)}",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            "--secure-port=10259",
            f"--cert-dir={certificates}",
        )
        certificate = certificates / "kube-scheduler.crt"
        child.wait_healthy("https://127.0.0.1:10259/healthz", certificate, READY_SECONDS)


def _is_kept(argument: str) -> bool:
    replaced = ("--bind-address", "--authorization-mode", "--disable-admission-plugins")
    return not argument.startswith(replaced)


def _write_certificates(authority: Path, serving: Path) -> None:
    """Write a CA, and a certificate signed by it with its key in the same file."""
    key, signing = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "rig")])
    constraint = x509.BasicConstraints(ca=True, path_length=0)
    root = _builder(name, signing).issuer_name(name).add_extension(constraint, critical=True)
    authority.write_bytes(_pem(root.sign(signing, hashes.SHA256())))
    addresses = [ADDRESS, API_SERVER, "127.0.0.1"]
    names = x509.SubjectAlternativeName(
        [
            *map(x509.DNSName, _NAMES),
            *(x509.IPAddress(ipaddress.ip_address(address)) for address in addresses),
        ]
    )
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    server = _builder(x509.Name([]), key).issuer_name(name)
    server = server.add_extension(names, critical=True).add_extension(usage, critical=False)
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    serving.write_bytes(_pem(server.sign(signing, hashes.SHA256())) + private)


def _builder(subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _VALID_BEFORE)
        .not_valid_after(now + _VALID_AFTER)
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
