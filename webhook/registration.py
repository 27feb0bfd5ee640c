"""Registration: the two webhook configurations, shown as YAML or written to a cluster.

Validating fails closed, or a quota would be advice; it has the API server's longest time, because
a log that changes its leader takes seconds. Mutating fails open and quickly: what it adds is
convenience, and validating judges the result anyway.
"""

import base64
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import yaml

from ledger.kube.client import Client
from webhook import matching
from webhook.app import MUTATE_PATH, VALIDATE_PATH

NAME: Final = "gpuledger"
"""Name of both configurations, and the field manager under which they are written."""

VALIDATE_SECONDS: Final = 10
MUTATE_SECONDS: Final = 2
REGISTER_SECONDS: Final = 15.0
"""Deadline of writing one configuration."""

_API: Final = "admissionregistration.k8s.io/v1"

Configuration = dict[str, Any]
"""A Kubernetes object, ready for YAML or JSON."""


class Service(msgspec.Struct, frozen=True):
    """A Service of the cluster that leads to the webhook."""

    namespace: str
    name: str
    port: int = 443


class Address(msgspec.Struct, frozen=True):
    """Where the API server reaches the webhook: a base URL or a Service, and the CA (PEM)."""

    target: str | Service
    authority: bytes


def configurations(
    address: Address, resources: Sequence[str], exempt_namespaces: Sequence[str]
) -> tuple[Configuration, Configuration]:
    """Return the mutating and the validating configuration.

    `resources` are the managed resource names. The exempt namespaces must hold the one that the
    service itself runs in, or its own pods would wait for it.
    """
    mutating = {
        **_webhook("mutate", MUTATE_PATH, address, resources, exempt_namespaces),
        "failurePolicy": "Ignore",
        "sideEffects": "None",
        "timeoutSeconds": MUTATE_SECONDS,
        "reinvocationPolicy": "Never",
        "rules": [_rule("pods", "CREATE")],
    }
    validating = {
        **_webhook("validate", VALIDATE_PATH, address, resources, exempt_namespaces),
        "failurePolicy": "Fail",
        "sideEffects": "NoneOnDryRun",
        "timeoutSeconds": VALIDATE_SECONDS,
        "rules": [_rule("pods", "CREATE", "UPDATE"), _rule("pods/resize", "UPDATE")],
    }
    return (
        _configuration("MutatingWebhookConfiguration", mutating),
        _configuration("ValidatingWebhookConfiguration", validating),
    )


def render(found: Sequence[Configuration]) -> str:
    """Return the configurations as one YAML stream."""
    return yaml.safe_dump_all(found, sort_keys=False, width=100)


async def register(client: Client, found: Sequence[Configuration]) -> None:
    """Create or update the configurations by server-side apply, owning what they say.

    Needs the verbs create and patch. Raises ClusterError.
    """
    for configuration in found:
        resource = configuration["kind"].lower() + "s"
        await client.request(
            "PATCH",
            f"/apis/{_API}/{resource}/{configuration['metadata']['name']}",
            params={"fieldManager": NAME, "force": "true"},
            body=msgspec.json.encode(configuration),
            content_type="application/apply-patch+yaml",
            seconds=REGISTER_SECONDS,
        )


def _configuration(kind: str, webhook: dict[str, Any]) -> Configuration:
    return {
        "apiVersion": _API,
        "kind": kind,
        "metadata": {"name": NAME},
        "webhooks": [webhook],
    }


def _webhook(
    verb: str,
    path: str,
    address: Address,
    resources: Sequence[str],
    exempt_namespaces: Sequence[str],
) -> dict[str, Any]:
    return {
        "name": f"pods.{verb}.gpuledger.io",
        "clientConfig": _client(path, address),
        "admissionReviewVersions": ["v1"],
        "matchPolicy": "Equivalent",
        "matchConditions": matching.conditions(resources),
        "namespaceSelector": {
            "matchExpressions": [
                {
                    "key": "kubernetes.io/metadata.name",
                    "operator": "NotIn",
                    "values": sorted(set(exempt_namespaces)),
                }
            ]
        },
    }


def _rule(resource: str, *operations: str) -> dict[str, Any]:
    return {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "scope": "Namespaced",
        "operations": list(operations),
        "resources": [resource],
    }


def _client(path: str, address: Address) -> dict[str, Any]:
    bundle = {"caBundle": base64.b64encode(address.authority).decode()}
    if isinstance(address.target, str):
        return {"url": address.target.rstrip("/") + path, **bundle}
    return {"service": {**msgspec.structs.asdict(address.target), "path": path}, **bundle}
