"""Bring cluster, product and second webhook together, and wait until both webhooks are in effect.

The product runs with the few rights that it says it needs, not as an administrator: a right that
is missing here shows as a failing test.
"""

from typing import Final

from tests.e2e.cluster import Answer, Cluster, Manifest
from tests.e2e.controlplane import SERVICE, TENANT
from tests.e2e.later import DENY, REFUSAL, LaterWebhook
from tests.e2e.pods import MEMORY, pod
from tests.e2e.polling import eventually
from tests.e2e.service import Service

EFFECTIVE_SECONDS: Final = 30.0
CANARY: Final = "canary"

_READ: Final = ["get", "list", "watch"]
_SERVICE_RULES: Final[list[Manifest]] = [
    {"apiGroups": [""], "resources": ["pods", "resourcequotas", "namespaces"], "verbs": _READ},
    {
        "apiGroups": ["admissionregistration.k8s.io"],
        "resources": ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"],
        "verbs": ["get", "create", "update", "patch"],
    },
    {
        "apiGroups": ["authentication.k8s.io"],
        "resources": ["tokenreviews"],
        "verbs": ["create"],
    },
    {
        "apiGroups": ["authorization.k8s.io"],
        "resources": ["subjectaccessreviews"],
        "verbs": ["create"],
    },
]
_TENANT_RULES: Final[list[Manifest]] = [
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "create", "delete"]}
]


async def open_the_cluster(cluster: Cluster, later: LaterWebhook, service: Service) -> None:
    """Grant rights, register the second webhook, start the product, wait for both webhooks."""
    await _grant(cluster, SERVICE, _SERVICE_RULES)
    await _grant(cluster, TENANT, _TENANT_RULES)
    webhooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    await cluster.must("POST", webhooks, later.configuration())
    await _make_canary(cluster)
    service.start()
    service.wait_ready()
    await _refused(cluster, pod("deny", labels=DENY), REFUSAL)
    await _refused(cluster, pod("canary"), MEMORY)


async def webhooks_are_in_effect(cluster: Cluster) -> None:
    """Wait until the API server asks the product about GPU pods."""
    await _refused(cluster, pod("canary"), MEMORY)


async def _grant(cluster: Cluster, user: str, rules: list[Manifest]) -> None:
    group, version = "rbac.authorization.k8s.io", "rbac.authorization.k8s.io/v1"
    role = {
        "apiVersion": version,
        "kind": "ClusterRole",
        "metadata": {"name": f"e2e-{user}"},
        "rules": rules,
    }
    binding = {
        "apiVersion": version,
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"e2e-{user}"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": f"e2e-{user}"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    }
    await cluster.must("POST", f"/apis/{version}/clusterroles", role)
    await cluster.must("POST", f"/apis/{version}/clusterrolebindings", binding)


async def _make_canary(cluster: Cluster) -> None:
    """Make a namespace in which nothing fits: who is refused there knows that the gate is shut."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": CANARY}}
    await cluster.must("POST", "/api/v1/namespaces", namespace)
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "nothing"},
        "spec": {"hard": {f"limits.{MEMORY}": "0"}},
    }
    await cluster.must("POST", f"/api/v1/namespaces/{CANARY}/resourcequotas", quota)


async def _refused(cluster: Cluster, manifest: Manifest, because: str) -> None:
    path = f"/api/v1/namespaces/{CANARY}/pods?dryRun=All"

    async def look() -> Answer:
        return await cluster.ask("POST", path, manifest)

    await eventually(
        look,
        lambda answer: answer.status == 403 and because in answer.message,
        within=EFFECTIVE_SECONDS,
        what=f"a dry run in namespace {CANARY} is refused because of {because!r}",
    )
