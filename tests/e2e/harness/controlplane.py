"""A real Kubernetes control plane on loopback: etcd, kube-apiserver and kube-controller-manager.

The binaries come from the folder named by KUBEBUILDER_ASSETS, the convention of envtest in
controller-runtime. There are no nodes and no kubelet: pods stay Pending until a test sets
otherwise. The controller manager is there because without it a native ResourceQuota has no status
and admits everything.
"""

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from support.servers.ports import free_port

from tests.e2e.harness.processes import Child

READY_SECONDS: Final = 60.0

ADMIN: Final = "admin"
SERVICE: Final = "gpuledger"
TENANT: Final = "alice"
CONTROLLERS: Final = "system:kube-controller-manager"
SCHEDULER: Final = "system:kube-scheduler"

_IDENTITIES: Final = {
    ADMIN: "system:masters",
    SERVICE: "gpuledger",
    TENANT: "tenants",
    CONTROLLERS: "controllers",
    SCHEDULER: "schedulers",
}
"""User name to group. The token of each is `<user>-token`; only the first may do everything.

The controller manager and the scheduler have the users that Kubernetes' own roles are bound to.
Each controller acts with a service account of its own, so a webhook sees who makes a pod as on a
real cluster.
"""


class ControlPlane:
    """A running control plane; everything it writes is under `folder`."""

    def __init__(
        self,
        assets: Path,
        folder: Path,
        controllers: str = CONTROLLERS,
        *,
        api_server_flags: Sequence[str] = (),
        controller_flags: Sequence[str] = (),
    ) -> None:
        """With another user than usual as `controllers`, every controller acts as that user.

        The flags are further flags of the API server and of the controller manager.
        """
        self._controllers, self._api_server_flags = controllers, api_server_flags
        self._controller_flags = controller_flags
        self._identities = {controllers: "system:masters"} | _IDENTITIES
        self.folder = folder
        self.url = f"https://127.0.0.1:{free_port()}"
        self.ca = folder / "certs" / "apiserver.crt"
        self.server_key = folder / "certs" / "apiserver.key"
        self._assets = assets
        self._children: list[Child] = []
        self.etcd: Child | None = None
        self.controller_manager: Child | None = None

    def start(self) -> None:
        """Start everything and return when the API server is ready."""
        try:
            self._write_credentials()
            etcd_url = self._start_etcd()
            self._start_api_server(etcd_url)
            self._start_controller_manager()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End all processes, those that need the others first."""
        while self._children:
            self._children.pop().stop()

    def pause_etcd(self) -> None:
        """Freeze etcd: writes and linearizable reads hang, connections stay."""
        assert self.etcd is not None, "the control plane runs"
        self.etcd.pause()

    def resume_etcd(self) -> None:
        """Let etcd run on; what reached it meanwhile is done now."""
        assert self.etcd is not None, "the control plane runs"
        self.etcd.resume()

    def kubeconfig(self, user: str) -> Path:
        """Return the kubeconfig file of one of the identities."""
        return self.folder / f"{user}.kubeconfig"

    @staticmethod
    def token(user: str) -> str:
        """Return the bearer token of one of the identities."""
        return f"{user}-token"

    def _write_credentials(self) -> None:
        lines = [
            f'{self.token(user)},{user},{user},"{group}"'
            for user, group in self._identities.items()
        ]
        (self.folder / "tokens.csv").write_text("\n".join(lines) + "\n")
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        pem = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
        (self.folder / "sa.key").write_bytes(pem)

    def _write_kubeconfigs(self) -> None:
        authority = base64.b64encode(self.ca.read_bytes()).decode()
        for user in self._identities:
            config = {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "test",
                "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}],
                "clusters": [
                    {
                        "name": "test",
                        "cluster": {"server": self.url, "certificate-authority-data": authority},
                    }
                ],
                "users": [{"name": user, "user": {"token": self.token(user)}}],
            }
            self.kubeconfig(user).write_text(json.dumps(config))

    def _start_etcd(self) -> str:
        client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        self.etcd = self._run(
            "etcd",
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
        )
        return client

    def _start_api_server(self, etcd_url: str) -> None:
        key = self.folder / "sa.key"
        server = self._run(
            "kube-apiserver",
            f"--etcd-servers={etcd_url}",
            f"--secure-port={self.url.rpartition(':')[2]}",
            "--bind-address=127.0.0.1",
            f"--cert-dir={self.ca.parent}",
            f"--token-auth-file={self.folder / 'tokens.csv'}",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--disable-admission-plugins=ServiceAccount",
            "--allow-privileged",
            *self._api_server_flags,
        )
        server.wait_healthy(f"{self.url}/readyz", self.ca, READY_SECONDS)
        self._write_kubeconfigs()

    def _start_controller_manager(self) -> None:
        port = free_port()
        certificates = self.folder / "controller-manager"
        self.controller_manager = manager = self._run(
            "kube-controller-manager",
            f"--kubeconfig={self.kubeconfig(self._controllers)}",
            f"--use-service-account-credentials={str(self._controllers == CONTROLLERS).lower()}",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--cert-dir={certificates}",
            f"--service-account-private-key-file={self.folder / 'sa.key'}",
            *self._controller_flags,
        )
        certificate = certificates / "kube-controller-manager.crt"
        manager.wait_healthy(f"https://127.0.0.1:{port}/healthz", certificate, READY_SECONDS)

    def _run(self, program: str, *arguments: str) -> Child:
        command = [str(self._assets / program), *arguments]
        child = Child(program, command, self.folder / f"{program}.log")
        self._children.append(child)
        return child
