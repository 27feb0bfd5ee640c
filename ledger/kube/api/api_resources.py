"""API resources: the names of a kind in paths, in keys and in manifests."""

from functools import cached_property
from typing import Final
from urllib.parse import quote

import msgspec

GROUP: Final = "gpuledger.io"
"""The group of this product's own resources."""


class Resource(msgspec.Struct, frozen=True, dict=True):
    """One kind in one version, such as `apps`, `v1`, `deployments`, `Deployment`, namespaced.

    The core group is "". Two versions of one resource are the same objects under two paths.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @cached_property
    def name(self) -> str:
        """The name in every version, as storage keys have it: `deployments.apps`, `pods`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def api_version(self) -> str:
        """Group and version as in manifests and ownerReferences: `apps/v1`, `v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def collection(self, namespace: str = "") -> str:
        """Return the path of all objects, or of those in one namespace."""
        base = f"/apis/{self.api_version}" if self.group else f"/api/{self.api_version}"
        inside = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
        return f"{base}{inside}/{self.plural}"

    def object(self, namespace: str, name: str) -> str:
        """Return the path of one object; `namespace` is "" where the resource has none."""
        return f"{self.collection(namespace)}/{quote(name, safe='')}"


PODS: Final = Resource("", "v1", "pods", "Pod")
QUOTAS: Final = Resource("", "v1", "resourcequotas", "ResourceQuota")
NAMESPACES: Final = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
NODES: Final = Resource("", "v1", "nodes", "Node", namespaced=False)
EVENTS: Final = Resource("events.k8s.io", "v1", "events", "Event")
DEPLOYMENTS: Final = Resource("apps", "v1", "deployments", "Deployment")
DAEMON_SETS: Final = Resource("apps", "v1", "daemonsets", "DaemonSet")
BUDGETS: Final = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
UNIVERSE_QUOTAS: Final = Resource(
    GROUP, "v1alpha1", "universeresourcequotas", "UniverseResourceQuota", namespaced=False
)
CLAIMS: Final = Resource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim")
CLAIM_TEMPLATES: Final = Resource(
    "resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate"
)
DEVICE_CLASSES: Final = Resource(
    "resource.k8s.io", "v1", "deviceclasses", "DeviceClass", namespaced=False
)
RESOURCE_SLICES: Final = Resource(
    "resource.k8s.io", "v1", "resourceslices", "ResourceSlice", namespaced=False
)
POLICIES: Final = Resource(GROUP, "v1alpha1", "ledgerpolicies", "LedgerPolicy", namespaced=False)
DEFINITIONS: Final = Resource(
    "apiextensions.k8s.io",
    "v1",
    "customresourcedefinitions",
    "CustomResourceDefinition",
    namespaced=False,
)
