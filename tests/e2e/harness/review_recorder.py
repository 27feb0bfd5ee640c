"""A webhook that allows everything and records the reviews, in a namespace of its own."""

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from support.servers.tls_server import serving_at

from ledger.kube.client.api_client import ApiClient
from ledger.runtime.tls import certificate_reload
from tests.e2e.conftest import _connected
from tests.e2e.harness.cluster import Cluster, Manifest
from tests.e2e.harness.controlplane import ADMIN, ControlPlane
from tests.e2e.harness.polling import eventually
from tests.e2e.objects.pods import pod
from webhook.configurations import webhook_configurations
from webhook.configurations.webhook_configurations import ReviewScope, WebhookAddress
from webhook.kinds.kind_catalog import KindCatalog

RESOURCES: Final = ("nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores")
EXEMPT: Final = ("kube-system", "exempt")
VALIDATE: Final = "/admission/validate"
BOTH: Final = [("/admission/mutate", "CREATE", ""), (VALIDATE, "CREATE", "")]
Seen = tuple[str, str, str]
"""Path, operation and subresource of a review."""


class ReviewRecorder:
    """An ASGI webhook that allows everything."""

    def __init__(self) -> None:
        self.reviews: dict[tuple[str, str], list[Seen]] = {}
        self.versions: set[str] = set()
        """The API versions of the reviewed objects, `group/version` or `version`."""

    def of(self, namespace: str, name: str = "a") -> list[Seen]:
        """Return the reviews of a pod, and forget them."""
        return self.reviews.pop((namespace, name), [])

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message["body"], message["more_body"]
        review = msgspec.json.decode(body)
        request = review["request"]
        key = request["namespace"], request.get("name") or "a"
        seen = scope["path"], request["operation"], request.get("subResource", "")
        self.reviews.setdefault(key, []).append(seen)
        kind = request["kind"]
        self.versions.add("/".join(filter(None, (kind["group"], kind["version"]))))
        answer = {
            "apiVersion": review["apiVersion"],
            "kind": review["kind"],
            "response": {"uid": request["uid"], "allowed": True},
        }
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": msgspec.json.encode(answer)})


class ReviewedNamespace:
    """A namespace of a cluster in which the webhooks are registered."""

    def __init__(self, cluster: Cluster, recorder: ReviewRecorder, namespace: str) -> None:
        self.cluster = cluster
        self.recorder = recorder
        self.namespace = namespace

    @property
    def pods(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"

    async def created(self, manifest: Manifest, **options: Any) -> list[Seen]:
        """Create a pod; return which reviews that made."""
        await self.cluster.must("POST", self.pods, manifest, **options)
        return self.recorder.of(self.namespace)

    async def patched(self, change: Manifest, subresource: str = "") -> list[Seen]:
        """Patch the pod; return which reviews that made."""
        answer = await self.cluster.patch(f"{self.pods}/a{subresource}", change)
        assert answer.status == 200, answer.message
        return self.recorder.of(self.namespace)


REVIEWED: Final = ReviewScope(RESOURCES, KindCatalog.load(), EXEMPT)


async def register(
    plane: ControlPlane, base: str, authority: bytes, reviewed: ReviewScope = REVIEWED
) -> None:
    configurations = webhook_configurations.configurations(
        WebhookAddress(base, authority), reviewed
    )
    async with await ApiClient.connect(plane.kubeconfig(ADMIN)) as client:
        await webhook_configurations.register(client, configurations)


async def make_namespace(cluster: Cluster, name: str) -> None:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    await cluster.ask("POST", "/api/v1/namespaces", namespace)


async def effective(setting: ReviewedNamespace) -> None:
    async def look() -> list[Seen]:
        path = f"{setting.pods}?dryRun=All"
        await setting.cluster.ask("POST", path, pod("canary"))
        return setting.recorder.of(setting.namespace, "canary")

    await eventually(look, lambda seen: len(seen) == 2, within=30, what="both webhooks are asked")


def plain(**metadata: Any) -> Manifest:
    """A pod that asks for no accelerator."""
    manifest = pod("a", **metadata)
    manifest["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    return manifest


def owned_by(kind: str, uid: str = "u-1", *, controller: bool = True) -> Manifest:
    reference = {"apiVersion": "apps/v1", "kind": kind, "name": "web", "uid": uid}
    return {"metadata": {"ownerReferences": [{**reference, "controller": controller}]}}


class ReviewedDeployments(ReviewedNamespace):
    """The same namespace, with Deployments in the place of pods."""

    @property
    def pods(self) -> str:
        return f"/apis/apps/v1/namespaces/{self.namespace}/deployments"


def deployment(template: Manifest) -> Manifest:
    labels = {"app": "a"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "a"},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": template["spec"]},
        },
    }


@pytest.fixture(scope="module")
def plane(recorded_plane: ControlPlane) -> ControlPlane:
    """Return the control plane of all modules with recorders."""
    return recorded_plane


@pytest.fixture
async def setting(plane: ControlPlane, tmp_path: Path) -> AsyncIterator[ReviewedNamespace]:
    """Serve and register the recorder; wait until the API server asks it."""
    async with recording(plane, tmp_path) as reviewed:
        yield reviewed


@asynccontextmanager
async def recording(
    plane: ControlPlane, tmp_path: Path, reviewed: ReviewScope = REVIEWED
) -> AsyncIterator[ReviewedNamespace]:
    """Serve a recorder, registered for a scope; wait until the API server asks it."""
    recorder, secured = (
        ReviewRecorder(),
        certificate_reload.Tls(certificate_reload.own(tmp_path / "tls", ())),
    )
    namespace = f"team-{uuid.uuid4().hex[:8]}"
    async with _connected(plane) as cluster, serving_at(recorder, secured) as address:
        await make_namespace(cluster, namespace)
        authority = (tmp_path / "tls" / "ca.crt").read_bytes()
        await register(plane, f"https://{address}", authority, reviewed)
        setting = ReviewedNamespace(cluster, recorder, namespace)
        await effective(setting)
        yield setting
