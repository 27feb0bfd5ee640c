"""Follow docs/how-to/operating.md about rights and certificates, on a control plane of its own.

The service has the rights of deploy/rbac.yaml and lets in only clients with a certificate; the API
server presents one because of the two files on that page.
"""

import asyncio
import re
import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import yaml

from tests.e2e.harness.cluster import Answer, Cluster
from tests.e2e.harness.controlplane import ADMIN, SERVICE, ControlPlane
from tests.e2e.harness.kubectl import Kubectl, commands_of
from tests.e2e.harness.polling import eventually
from tests.e2e.harness.processes import Child
from tests.e2e.harness.service import Service
from tests.e2e.objects.pods import MEMORY, pod

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "how-to" / "operating.md").read_text()
INSTALL = (ROOT / "docs" / "how-to" / "kustomize.md").read_text()
EFFECTIVE_SECONDS = 30.0


class Configured(ControlPlane):
    """A control plane whose API server reads an admission configuration."""

    def _run(self, program: str, *arguments: str) -> Child:
        if program == "kube-apiserver":
            arguments = (
                *arguments,
                f"--admission-control-config-file={self.folder}/admission/config.yaml",
            )
        return super()._run(program, *arguments)


def block_of(language: str, beginning: str) -> str:
    """Return the code block of the page that begins with some text."""
    for block in re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL):
        if block.startswith(beginning):
            return str(block)
    raise AssertionError(f"the page has no block that begins with {beginning!r}")


def make_certificates(folder: Path) -> None:
    """Type the page's commands."""
    commands = block_of("sh", "openssl req -x509 -newkey ec")
    subprocess.run(["bash", "-e"], input=commands, text=True, cwd=folder, check=True, timeout=30)


def write_admission(folder: Path, listen: str) -> None:
    """Write the page's two files, with the folder and the service's address of this test."""
    for name in ("config.yaml", "webhooks.kubeconfig"):
        text = block_of("yaml", f"# /etc/kubernetes/admission/{name}")
        text = text.replace("/etc/kubernetes/admission", str(folder))
        (folder / name).write_text(text.replace("gpuledger.gpuledger.svc\n", f"{listen}\n"))


async def grant(cluster: Cluster) -> None:
    """Create the namespace and what deploy/rbac.yaml holds; give the service's user its role."""
    texts = ((ROOT / "deploy" / name).read_text() for name in ("namespace.yaml", "rbac.yaml"))
    for manifest in yaml.safe_load_all("\n---\n".join(texts)):
        kind, meta = manifest["kind"], manifest["metadata"]
        if kind == "ClusterRoleBinding":
            manifest["subjects"] = [{"kind": "User", "name": SERVICE}]
        api = manifest["apiVersion"]
        space = f"/namespaces/{meta['namespace']}" if "namespace" in meta else ""
        base = "/api/v1" if api == "v1" else f"/apis/{api}"
        await cluster.must("POST", f"{base}{space}/{kind.lower()}s", manifest)


@pytest.fixture
async def admin(
    assets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Cluster]:
    """Run a control plane and the product as on the page; return the control plane."""
    admission = tmp_path / "admission"
    admission.mkdir()
    make_certificates(admission)
    monkeypatch.setenv("GPULEDGER_CLIENT_CA", str(admission / "client-ca.crt"))
    monkeypatch.setenv("GPULEDGER_CLIENT_SUBJECTS", "CN=kube-apiserver")
    running = Configured(assets, tmp_path)
    service = Service(tmp_path, running.kubeconfig(SERVICE))
    write_admission(admission, service.address)
    running.start()
    context = ssl.create_default_context(cafile=str(running.ca))
    try:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:
            cluster = Cluster(session, running.url, running.token(ADMIN))
            await grant(cluster)
            service.start()
            service.wait_ready()
            yield cluster
    finally:
        if service.runs:
            service.stop()
        running.stop()


async def test_a_quota_holds_with_the_rights_and_certificates_of_the_page(
    admin: Cluster,
) -> None:
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
    await admin.must("POST", "/api/v1/namespaces", space)
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "gpus"},
        "spec": {"hard": {f"limits.{MEMORY}": "8000"}},
    }
    await admin.must("POST", "/api/v1/namespaces/team/resourcequotas", quota)

    async def ask(memory: int) -> Answer:
        pods = "/api/v1/namespaces/team/pods?dryRun=All"
        return await admin.ask("POST", pods, pod("p", memory=memory))

    await eventually(
        lambda: ask(9_000),
        lambda answer: answer.status == 403 and "ExceedsLimit" in answer.message,
        within=EFFECTIVE_SECONDS,
        what="a pod beyond the quota is refused by the product",
    )
    assert (await ask(8_000)).status == 201


async def test_the_check_of_the_install_page_is_refused_as_shown(
    admin: Cluster, assets: Path, tmp_path: Path
) -> None:
    kubectl = Kubectl(assets, tmp_path / f"{ADMIN}.kubeconfig", tmp_path)
    said = "that much GPU memory: Pod p would need 8000 MiB"
    assert f"`{said}`" in INSTALL
    *prepare, ask, clean = commands_of(INSTALL, "Verify")[0].split("\nkubectl ")
    kubectl.type("\nkubectl ".join(prepare))

    async def refused() -> tuple[int, str]:
        return await asyncio.to_thread(kubectl.attempt, f"kubectl {ask}")

    await eventually(
        refused,
        lambda answer: answer[0] == 1 and said in answer[1],
        within=EFFECTIVE_SECONDS,
        what="the pod of the install page is refused",
    )
    kubectl.type(f"kubectl {clean.rstrip()} --wait=false")
