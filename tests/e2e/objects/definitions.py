"""Objects of the kinds that deploy/crds defines: what is meant, and what is a mistake."""

from typing import Any, Final

from ledger.kube.api.api_resources import DEFINITIONS, Resource
from tests.e2e.harness.cluster import Manifest

QUOTAS: Final = "/apis/gpuledger.io/v1alpha1/universeresourcequotas"
POLICIES: Final = "/apis/gpuledger.io/v1alpha1/ledgerpolicies"


def quota(**spec: Any) -> Manifest:
    """A quota over everything, but for what is given."""
    return {
        "apiVersion": "gpuledger.io/v1alpha1",
        "kind": "UniverseResourceQuota",
        "metadata": {"generateName": "u-"},
        "spec": {"hard": {"limits.nvidia.com/gpumem": "640000"}} | spec,
    }


def policy(**spec: Any) -> Manifest:
    """A policy for everything, but for what is given."""
    return {
        "apiVersion": "gpuledger.io/v1alpha1",
        "kind": "LedgerPolicy",
        "metadata": {"generateName": "p-"},
        "spec": spec,
    }


def expression(**given: Any) -> Manifest:
    return {"matchExpressions": [given]}


FULL_QUOTA: Final = quota(
    hard={"limits.nvidia.com/gpumem": "640k", "requests.nvidia.com/gpu": 64, "limits.cpu": "0"},
    regions=["eu-west"],
    clusters=["east-1", "west-1"],
    clusterSelector={"matchLabels": {"tier": "prod"}},
    namespaces=["team-a"],
    namespaceSelector=expression(key="team", operator="In", values=["a", "b"]),
    objectSelector=expression(key="app", operator="Exists"),
    scopes=["NotTerminating", "PriorityClass"],
    scopeSelector=expression(scopeName="PriorityClass", operator="In", values=["high"]),
)
FULL_POLICY: Final = policy(
    namespaces=["team-a"],
    namespaceSelector=expression(key="team", operator="DoesNotExist"),
    priority=-5,
    mode="warn",
    onExceeded="pending",
    surge="strict",
    elastic="max",
    missingClaimTemplates="deny",
    unmappedDeviceClasses="warn",
    podsOnly=True,
    exempt={"users": ["system:serviceaccount:ops:rescuer"], "groups": ["ops"]},
    defaultQuota={"name": "gpus", "hard": {"limits.nvidia.com/gpumem": "16000"}},
)

MISTAKES: Final = [
    (QUOTAS, quota(hard={}), "spec.hard"),
    (QUOTAS, quota(hard={"gpu": "1"}), "a key is limits.RESOURCE or requests.RESOURCE"),
    (QUOTAS, quota(hard={"limits.": "1"}), "a key is limits.RESOURCE or requests.RESOURCE"),
    (QUOTAS, quota(hard={"limits.nvidia.com/gpu": "-1"}), "spec.hard.limits.nvidia.com/gpu"),
    (QUOTAS, quota(hard={"limits.nvidia.com/gpu": -1}), "greater than or equal to 0"),
    (QUOTAS, quota(hard={"limits.nvidia.com/gpu": "many"}), "spec.hard"),
    (QUOTAS, quota(clusters=["East_1"]), "spec.clusters[0]"),
    (QUOTAS, quota(clusters=["a", "a"]), 'spec.clusters[1]: Duplicate value: "a"'),
    (QUOTAS, quota(namespaces=["-"]), "spec.namespaces[0]"),
    (
        QUOTAS,
        quota(namespaceSelector=expression(key="team", operator="In")),
        "In and NotIn need values",
    ),
    (
        QUOTAS,
        quota(objectSelector=expression(key="app", operator="Exists", values=["a"])),
        "Exists and DoesNotExist take none",
    ),
    (
        QUOTAS,
        quota(clusterSelector=expression(key="tier", operator="Is", values=["a"])),
        'supported values: "In", "NotIn", "Exists", "DoesNotExist"',
    ),
    (QUOTAS, quota(scopes=["Fast"]), 'Unsupported value: "Fast"'),
    (QUOTAS, quota(scopes=["Terminating", "NotTerminating"]), "exclude each other"),
    (QUOTAS, quota(scopes=["BestEffort", "NotBestEffort"]), "exclude each other"),
    (
        QUOTAS,
        quota(scopeSelector=expression(scopeName="PriorityClass", operator="In")),
        "In and NotIn need values",
    ),
    (
        QUOTAS,
        quota(scopeSelector=expression(scopeName="BestEffort", operator="DoesNotExist")),
        "only the scope PriorityClass has values",
    ),
    (QUOTAS, quota(cluster="east-1"), 'unknown field "spec.cluster"'),
    (POLICIES, policy(mode="dry-run"), 'supported values: "enforce", "warn", "off"'),
    (POLICIES, policy(onExceeded="evict"), 'supported values: "deny", "pending"'),
    (POLICIES, policy(surge="none"), '"opportunistic", "reserve", "strict"'),
    (POLICIES, policy(elastic="min"), '"current", "max"'),
    (POLICIES, policy(missingClaimTemplates="ignore"), '"defer", "deny"'),
    (POLICIES, policy(unmappedDeviceClasses="ignore"), '"deny", "warn"'),
    (POLICIES, policy(priority="high"), "spec.priority"),
    (POLICIES, policy(exempt={"groups": ["system:authenticated"]}), "the group contains all users"),
    (POLICIES, policy(defaultQuota={"name": "gpus"}), "spec.defaultQuota.hard: Required"),
    (POLICIES, policy(defaultQuota={"hard": {"pods": "x"}}), "spec.defaultQuota.hard.pods"),
    (POLICIES, policy(exempt={"labels": {"a": "b"}}), 'unknown field "spec.exempt.labels"'),
]
"""Path, manifest, and the expected text of the refusal."""


def definition_without_status(resource: Resource) -> Manifest:
    """The definition of a cluster-scoped kind of one version, with any fields."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": resource.version, "served": True, "storage": True}
    return {
        "apiVersion": DEFINITIONS.api_version,
        "kind": DEFINITIONS.kind,
        "metadata": {"name": resource.name},
        "spec": {
            "group": resource.group,
            "scope": "Cluster",
            "names": {"kind": resource.kind, "plural": resource.plural},
            "versions": [{**version, "schema": {"openAPIV3Schema": anything}}],
        },
    }
