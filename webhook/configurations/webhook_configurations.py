"""The two webhook configurations, printed as YAML or written to a cluster.

The validating webhook of pods and workloads fails closed, because a quota that fails open enforces
nothing. Its timeout is the longest of the API server's, because the log may need seconds to elect a
leader. The mutating webhook fails open and quickly, because the validating one reviews its result;
`webhook.configurations.mutating_conditions` selects its pods. It leaves pods and namespaces with
HAMi's label `hami.io/webhook: ignore` unchanged; they are charged all the same.

Scales fail open, because no condition can select those of charged workloads, and the pods that
follow are validated. So do templates of resource claims, because the pods that name them are
validated. Definitions of limits fail open, because a malformed amount that was not
refused is read by the documented rules.
"""

import base64
from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec
import yaml

from ledger.kube.api.api_resources import (
    CLAIM_TEMPLATES,
    CLAIMS,
    POLICIES,
    QUOTAS,
    UNIVERSE_QUOTAS,
    Resource,
)
from ledger.kube.client.api_client import ApiClient
from webhook.api.admission_review import MUTATE_PATH, VALIDATE_PATH
from webhook.configurations import (
    configuration_paths,
    mutating_conditions,
    pod_conditions,
    resource_claim_conditions,
)
from webhook.configurations import kind_conditions as kinds_matching
from webhook.configurations.configuration_paths import API, MUTATING, NAME, VALIDATING
from webhook.context.card_schedulers import IGNORING, IGNORING_LABEL
from webhook.kinds.kind_catalog import KindCatalog
from webhook.kinds.kind_schema import WorkloadKind

FIELD_MANAGER: Final = "gpuledger"
"""The field manager under which the configurations are written."""

VALIDATE_SECONDS: Final = 10
MUTATE_SECONDS: Final = 2
LINT_SECONDS: Final = 2
REGISTER_SECONDS: Final = 15.0
"""Deadline of writing one configuration."""

Configuration = dict[str, Any]
"""A Kubernetes object, ready for YAML or JSON."""

WebhookEntry = dict[str, Any]
"""One webhook of a configuration."""

_WRITES: Final = ("CREATE", "UPDATE")
_CLOSED: Final[WebhookEntry] = {
    "failurePolicy": "Fail",
    "sideEffects": "NoneOnDryRun",
    "timeoutSeconds": VALIDATE_SECONDS,
}
_CHANGED: Final = {
    "name": "changes-what-is-judged",
    "expression": "request.operation != 'UPDATE' || object.?spec != oldObject.?spec",
}
_IGNORED: Final = {"key": IGNORING_LABEL, "operator": "NotIn", "values": [IGNORING]}


class ServiceReference(msgspec.Struct, frozen=True):
    """A Service of the cluster in front of the webhook."""

    namespace: str
    name: str
    port: int = 443


class WebhookAddress(msgspec.Struct, frozen=True):
    """The webhook's address for the API server: a base URL or a Service, and the CA (PEM)."""

    target: str | ServiceReference
    authority: bytes


class ReviewScope(msgspec.Struct, frozen=True):
    """The scope of reviews: names of managed resources, kinds, and exempt namespaces.

    The namespace of this service must be exempt, because its own pods would wait for it otherwise.
    `trusted` are the user names whose Bindings and statuses of pods are not reviewed. Resource
    claims of `other_classes` only are not reviewed, because these device classes have no GPUs. With
    `review_claim_status`, allocations of the other ones are.
    """

    resources: Sequence[str]
    kinds: KindCatalog
    exempt_namespaces: Sequence[str]
    trusted: Sequence[str] = ()
    other_classes: Sequence[str] = ()
    review_claim_status: bool = False


class RegistrationOptions(msgspec.Struct, frozen=True):
    """The name of both configurations, and the policy of webhooks that fail closed by default."""

    name: str = NAME
    failure_policy: Literal["Fail", "Ignore"] = "Fail"


_AS_USUAL: Final = RegistrationOptions()


def configurations(
    address: WebhookAddress, reviewed: ReviewScope, registration: RegistrationOptions = _AS_USUAL
) -> tuple[Configuration, Configuration]:
    """Return the mutating and the validating configuration."""
    client = _client(VALIDATE_PATH, address)
    validating = [
        _pods("validate", reviewed)
        | {"clientConfig": client, **_CLOSED}
        | {"rules": [_rule("", "v1", ["pods"]), _rule("", "v1", ["pods/resize"], "UPDATE")]},
        _claims(reviewed) | {"clientConfig": client},
        _ephemeral(reviewed) | {"clientConfig": client},
        _resource_claims(reviewed) | {"clientConfig": client},
        _claim_templates(reviewed) | {"clientConfig": client},
        *(_workloads(kind, reviewed) | {"clientConfig": client} for kind in reviewed.kinds),
    ]
    if reviewed.kinds.scalable:
        validating.append(_scales(reviewed) | {"clientConfig": client})
    validating.append(_definitions() | {"clientConfig": client})
    narrowed = {"name": mutating_conditions.CONDITION, "expression": mutating_conditions.WIDE}
    mutating = (
        _pods("mutate", reviewed, narrowed)
        | _unless_ignored(reviewed)
        | {
            "clientConfig": _client(MUTATE_PATH, address),
            "failurePolicy": "Ignore",
            "sideEffects": "None",
            "timeoutSeconds": MUTATE_SECONDS,
            "reinvocationPolicy": "Never",
            "rules": [_rule("", "v1", ["pods"], "CREATE")],
        }
    )
    if registration.failure_policy == "Ignore":
        validating = [webhook | {"failurePolicy": "Ignore"} for webhook in validating]
    return (
        _configuration(MUTATING, registration.name, [mutating]),
        _configuration(VALIDATING, registration.name, validating),
    )


class _Spelled(yaml.SafeDumper):
    """Repeats values instead of writing YAML aliases."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def render(documents: Sequence[Configuration]) -> str:
    """Return the configurations as one YAML stream."""
    return yaml.dump_all(documents, Dumper=_Spelled, sort_keys=False, width=100)


async def register(client: ApiClient, wanted: Sequence[Configuration]) -> None:
    """Create or update the configurations by server-side apply, as owner of their fields.

    Needs the verbs create and patch. Raises ClusterError.
    """
    for configuration in wanted:
        await client.request(
            "PATCH",
            configuration_paths.path(configuration["kind"], configuration["metadata"]["name"]),
            params={"fieldManager": FIELD_MANAGER, "force": "true"},
            body=msgspec.json.encode(configuration),
            content_type="application/apply-patch+yaml",
            seconds=REGISTER_SECONDS,
        )


def _configuration(kind: str, name: str, webhooks: list[WebhookEntry]) -> Configuration:
    return {
        "apiVersion": API,
        "kind": kind,
        "metadata": {"name": name},
        "webhooks": webhooks,
    }


def _pods(verb: str, reviewed: ReviewScope, *further: dict[str, Any]) -> WebhookEntry:
    conditions = [*pod_conditions.conditions(reviewed.resources), *further]
    return _entry(f"pods.{verb}", conditions) | _governed(reviewed)


def _claims(reviewed: ReviewScope) -> WebhookEntry:
    """Return the entry of requests that write annotations of pods through subresources."""
    return (
        _entry("claims.validate", pod_conditions.claims(sorted(set(reviewed.trusted))))
        | _governed(reviewed)
        | _CLOSED
        | {
            "rules": [
                _rule("", "v1", ["pods/status"], "UPDATE"),
                _rule("", "v1", ["pods/binding", "bindings"], "CREATE"),
            ]
        }
    )


def _ephemeral(reviewed: ReviewScope) -> WebhookEntry:
    """Return the entry of privileged ephemeral containers of pods that request cards."""
    return (
        _entry("ephemeralcontainers.validate", pod_conditions.debugging(reviewed.resources))
        | _governed(reviewed)
        | _CLOSED
        | {"rules": [_rule("", "v1", ["pods/ephemeralcontainers"], "UPDATE")]}
    )


def _resource_claims(reviewed: ReviewScope) -> WebhookEntry:
    """Return the entry of resource claims.

    A rule for a group or version that the API server does not serve has no effect. Requests of
    other versions are converted to the one of the rule.
    """
    rules = [_rule(CLAIMS.group, CLAIMS.version, [CLAIMS.plural])]
    if reviewed.review_claim_status:
        rules.append(_rule(CLAIMS.group, CLAIMS.version, [f"{CLAIMS.plural}/status"], "UPDATE"))
    conditions = resource_claim_conditions.of_claims(reviewed.other_classes)
    return (
        _entry("resourceclaims.validate", conditions)
        | _governed(reviewed)
        | _CLOSED
        | {"rules": rules}
    )


def _claim_templates(reviewed: ReviewScope) -> WebhookEntry:
    """Return the entry of templates of resource claims, which are charged nothing."""
    rule = _rule(CLAIM_TEMPLATES.group, CLAIM_TEMPLATES.version, [CLAIM_TEMPLATES.plural], "CREATE")
    conditions = resource_claim_conditions.of_templates(reviewed.other_classes)
    return (
        _entry("resourceclaimtemplates.validate", conditions)
        | _governed(reviewed)
        | {
            "failurePolicy": "Ignore",
            "sideEffects": "None",
            "timeoutSeconds": LINT_SECONDS,
            "rules": [rule],
        }
    )


def _workloads(kind: WorkloadKind, reviewed: ReviewScope) -> WebhookEntry:
    """Return the entry of one kind, with the conditions of its template paths.

    A kind that cannot be a root fails open, because the objects that it creates are reviewed.
    """
    conditions = kinds_matching.conditions(kind, reviewed.resources)
    return (
        _entry(f"{kind.name}.validate", conditions)
        | _governed(reviewed)
        | _CLOSED
        | {
            "failurePolicy": "Fail" if kind.root else "Ignore",
            "rules": [_rule(kind.group, "*", [kind.resource])],
        }
    )


def _scales(reviewed: ReviewScope) -> WebhookEntry:
    """Return the entry of scales, without a condition, because a scale has no template."""
    groups: dict[str, list[str]] = {}
    for kind in reviewed.kinds.scalable:
        groups.setdefault(kind.group, []).append(f"{kind.resource}/scale")
    return (
        _entry("scales.validate", [_CHANGED])
        | _governed(reviewed)
        | {
            "failurePolicy": "Ignore",
            "sideEffects": "NoneOnDryRun",
            "timeoutSeconds": VALIDATE_SECONDS,
            "rules": [_rule(group, "*", groups[group], "UPDATE") for group in groups],
        }
    )


def _definitions() -> WebhookEntry:
    """Return the entry of quotas and policies, which fails open."""
    resources = [QUOTAS, UNIVERSE_QUOTAS, POLICIES]
    return _entry("definitions.validate", [_CHANGED]) | {
        "failurePolicy": "Ignore",
        "sideEffects": "None",
        "timeoutSeconds": LINT_SECONDS,
        "rules": [
            _rule(resource.group, resource.version, [resource.plural]) | {"scope": _scope(resource)}
            for resource in resources
        ],
    }


def _entry(name: str, conditions: list[dict[str, Any]]) -> WebhookEntry:
    return {
        "name": f"{name}.gpuledger.io",
        "admissionReviewVersions": ["v1"],
        "matchPolicy": "Equivalent",
        "matchConditions": conditions,
    }


def _governed(reviewed: ReviewScope) -> WebhookEntry:
    """Return the selector of all namespaces but the exempt ones."""
    exempt = {
        "key": "kubernetes.io/metadata.name",
        "operator": "NotIn",
        "values": sorted(set(reviewed.exempt_namespaces)),
    }
    return {"namespaceSelector": {"matchExpressions": [exempt]}}


def _unless_ignored(reviewed: ReviewScope) -> WebhookEntry:
    """Return the selectors of pods without HAMi's label to ignore them."""
    namespaces = _governed(reviewed)["namespaceSelector"]["matchExpressions"]
    return {
        "namespaceSelector": {"matchExpressions": [*namespaces, _IGNORED]},
        "objectSelector": {"matchExpressions": [_IGNORED]},
    }


def _rule(group: str, version: str, resources: list[str], *operations: str) -> dict[str, Any]:
    return {
        "apiGroups": [group],
        "apiVersions": [version],
        "scope": "Namespaced",
        "operations": list(operations or _WRITES),
        "resources": resources,
    }


def _scope(resource: Resource) -> str:
    return "Namespaced" if resource.namespaced else "Cluster"


def _client(path: str, address: WebhookAddress) -> dict[str, Any]:
    bundle = {"caBundle": base64.b64encode(address.authority).decode()}
    if isinstance(address.target, str):
        return {"url": address.target.rstrip("/") + path, **bundle}
    return {"service": {**msgspec.structs.asdict(address.target), "path": path}, **bundle}
