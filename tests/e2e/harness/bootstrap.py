"""Bring cluster, product and second webhook together, and wait until both webhooks are in effect.

The product runs with the few rights that its manifests list, not as an administrator: a right that
is missing here shows as a failing test.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import yaml

from tests.e2e.harness.authorization import EVERYTHING, grant
from tests.e2e.harness.cluster import Answer, Cluster, Manifest
from tests.e2e.harness.controlplane import SERVICE, TENANT
from tests.e2e.harness.polling import eventually
from tests.e2e.harness.second_webhook import DENY, REFUSAL, SecondWebhook
from tests.e2e.harness.service import Service
from tests.e2e.objects import fake_operators
from tests.e2e.objects.fake_operators import RIGHTS_OF_DECLARED_KINDS
from tests.e2e.objects.pods import MEMORY, pod
from tests.e2e.objects.rights import RIGHTS

EFFECTIVE_SECONDS: Final = 30.0
CANARY: Final = "canary"

Rights = Mapping[tuple[str, str, str], Iterable[str]]
"""Verbs by group, resource and the only name, which may be empty."""

_CRDS: Final = Path(__file__).parents[3] / "deploy" / "crds"
_TENANT_RULES: Final[list[Manifest]] = [
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "create", "delete"]}
]


async def set_up_cluster(cluster: Cluster, later: SecondWebhook, service: Service) -> None:
    """Grant rights, register the second webhook, start the product, wait for both webhooks."""
    await grant_service(cluster, RIGHTS | RIGHTS_OF_DECLARED_KINDS)
    await grant(cluster, TENANT, _TENANT_RULES)
    for operator in fake_operators.OPERATORS:
        await grant(cluster, operator, EVERYTHING)
    await fake_operators.define(cluster)
    await kinds_are_served(cluster)
    webhooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    await cluster.must("POST", webhooks, later.configuration())
    await make_canary(cluster)
    service.start()
    service.wait_ready()
    await _refused(cluster, pod("deny", labels=DENY), REFUSAL)
    await _refused(cluster, pod("canary"), MEMORY)


async def webhooks_are_in_effect(cluster: Cluster) -> None:
    """Wait until the API server asks the product about GPU pods."""
    await _refused(cluster, pod("canary"), MEMORY)


def _rules(rights: Rights) -> list[Manifest]:
    """Write rights as the rules of a role; the third of a key is the only name, or empty."""
    return [
        {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}
        | ({"resourceNames": [name]} if name else {})
        for (group, resource, name), verbs in rights.items()
    ]


async def grant_service(cluster: Cluster, rights: Rights) -> None:
    """Grant the service its rights, and define the product's own kinds."""
    await grant(cluster, SERVICE, _rules(rights))
    for path in sorted(_CRDS.glob("*.yaml")):
        await cluster.must("POST", fake_operators.DEFINITIONS, yaml.safe_load(path.read_text()))


async def kinds_are_served(cluster: Cluster) -> None:
    """Wait until every kind that is defined can be used."""

    async def pending() -> list[str]:
        listed = await cluster.items(fake_operators.DEFINITIONS)
        return [
            definition["metadata"]["name"]
            for definition in listed
            if not _is_established(definition)
        ]

    await eventually(
        pending, lambda names: not names, within=EFFECTIVE_SECONDS, what="all kinds are served"
    )


def _is_established(definition: Manifest) -> bool:
    conditions = definition.get("status", {}).get("conditions") or ()
    return "True" in [
        condition["status"] for condition in conditions if condition["type"] == "Established"
    ]


async def make_canary(cluster: Cluster) -> None:
    """Make a namespace in which nothing fits: a denial there proves that reviews take place."""
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
        lambda answer: answer.status == 403 and because in str(answer.body),
        within=EFFECTIVE_SECONDS,
        what=f"a dry run in namespace {CANARY} is refused because of {because!r}",
    )
