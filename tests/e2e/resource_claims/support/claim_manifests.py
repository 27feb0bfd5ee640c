"""ResourceClaims, templates, and pods that use them."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from tests.e2e.harness.cluster import Manifest
from tests.e2e.resource_claims.support.claim_supply import H100_NODE, SHARED
from tests.e2e.scheduling.support.scheduler import DEFAULT_PROFILE

GROUP_VERSION: Final = "resource.k8s.io/v1"
ON_H100: Final = {"kubernetes.io/hostname": H100_NODE}


def exactly(
    device_class: str = SHARED, *, memory: str = "", cores: str = "", **fields: Any
) -> Manifest:
    """Return the exact form of a request, with other fields as the API has them."""
    asked = {
        name: quantity for name, quantity in (("memory", memory), ("cores", cores)) if quantity
    }
    capacity = {"capacity": {"requests": asked}} if asked else {}
    return {"deviceClassName": device_class, **capacity, **fields}


def spec_of(*requests: Manifest) -> Manifest:
    """Return the spec of a claim with these requests, `r0`, `r1` and so on.

    A request is its exact form, or `{"firstAvailable": […]}`.
    """
    return {
        "devices": {
            "requests": [
                {"name": f"r{index}"}
                | (request if "firstAvailable" in request else {"exactly": request})
                for index, request in enumerate(requests)
            ]
        }
    }


def first_available(*alternatives: Manifest) -> Manifest:
    """Return a request with alternatives, `s0`, `s1` and so on."""
    named = [{"name": f"s{index}", **each} for index, each in enumerate(alternatives)]
    return {"firstAvailable": named}


def claim(name: str, *requests: Manifest, **metadata: Any) -> Manifest:
    """Return a claim."""
    return {
        "apiVersion": GROUP_VERSION,
        "kind": "ResourceClaim",
        "metadata": {"name": name, **metadata},
        "spec": spec_of(*requests),
    }


def template(name: str, *requests: Manifest) -> Manifest:
    """Return a template of claims."""
    return {
        "apiVersion": GROUP_VERSION,
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name},
        "spec": {"spec": spec_of(*requests)},
    }


def pod_with(
    name: str,
    *,
    templates: tuple[str, ...] = (),
    claims: tuple[str, ...] = (),
    on: Mapping[str, str] = MappingProxyType({}),
) -> Manifest:
    """Return a pod that uses claims of templates, and claims by name, on nodes with labels."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": pod_spec(templates=templates, claims=claims, on=on),
    }


def pod_spec(
    *,
    templates: tuple[str, ...] = (),
    claims: tuple[str, ...] = (),
    on: Mapping[str, str] = MappingProxyType({}),
) -> Manifest:
    """Return the spec of such a pod."""
    used = [
        {"name": f"t{index}", "resourceClaimTemplateName": each}
        for index, each in enumerate(templates)
    ] + [{"name": f"c{index}", "resourceClaimName": each} for index, each in enumerate(claims)]
    resources = {"claims": [{"name": each["name"]} for each in used]}
    return {
        "schedulerName": DEFAULT_PROFILE,
        "containers": [{"name": "main", "image": "cuda:12", "resources": resources}],
        "resourceClaims": used,
        "nodeSelector": dict(on),
    }


def deployment_with(name: str, replicas: int, **uses: Any) -> Manifest:
    """Return a Deployment of such pods."""
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "strategy": {"type": "Recreate"},
            "template": {"metadata": {"labels": labels}, "spec": pod_spec(**uses)},
        },
    }
