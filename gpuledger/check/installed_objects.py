"""Installed objects: objects that exist under the names of an installation, and their owner.

Helm marks the objects of a release with a label and two annotations, and refuses to install over
objects with others. The service makes the webhook configurations, so those with webhooks of this
product have no such owner and are left out here.
"""

import asyncio
from typing import Final

import msgspec

from gpuledger.check.api_questions import ApiQuestions
from gpuledger.check.install_findings import Unasked
from gpuledger.check.registered_webhooks import KINDS, RegisteredConfiguration
from gpuledger.cli.release_names import full_name
from ledger.kube.api.api_resources import (
    DAEMON_SETS,
    DEFINITIONS,
    DEPLOYMENTS,
    POLICIES,
    UNIVERSE_QUOTAS,
    Resource,
)
from ledger.kube.api.objects import ObjectMeta

RELEASE: Final = "meta.helm.sh/release-name"
RELEASE_NAMESPACE: Final = "meta.helm.sh/release-namespace"

_RBAC: Final = "rbac.authorization.k8s.io"
_STATEFUL_SETS: Final = Resource("apps", "v1", "statefulsets", "StatefulSet")
_SERVICES: Final = Resource("", "v1", "services", "Service")
_ACCOUNTS: Final = Resource("", "v1", "serviceaccounts", "ServiceAccount")
_ROLES: Final = Resource(_RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False)
_BINDINGS: Final = Resource(
    _RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
)
_WEBHOOKS: Final = tuple(
    Resource(
        "admissionregistration.k8s.io",
        "v1",
        f"{kind}webhookconfigurations",
        f"{kind.capitalize()}WebhookConfiguration",
        namespaced=False,
    )
    for kind in KINDS
)


class ForeignObject(msgspec.Struct, frozen=True):
    """An object under a name of an installation that does not belong to its release.

    `owner` is the release that it belongs to, `NAMESPACE/NAME`, empty if helm did not make it.
    """

    kind: str
    name: str
    owner: str


async def foreign_objects(
    questions: ApiQuestions, namespace: str, release: str, name: str
) -> list[ForeignObject] | Unasked:
    """Return the existing objects of a release's names that are not of the release."""
    wanted = [
        (_ACCOUNTS, name),
        (_SERVICES, name),
        (DEPLOYMENTS, name),
        (_STATEFUL_SETS, f"{name}-nats"),
        (DEPLOYMENTS, f"{name}-scheduler"),
        (DAEMON_SETS, f"{name}-agent"),
        (_ROLES, name),
        (_BINDINGS, name),
        *((webhooks, name) for webhooks in _WEBHOOKS),
    ]
    return await _foreign(questions, wanted, namespace, release)


async def foreign_definitions(
    questions: ApiQuestions, namespace: str, release: str
) -> list[ForeignObject] | Unasked:
    """Return the existing definitions of this product's kinds that are not of the release."""
    wanted = [(DEFINITIONS, resource.name) for resource in (UNIVERSE_QUOTAS, POLICIES)]
    return await _foreign(questions, wanted, namespace, release)


async def _foreign(
    questions: ApiQuestions, wanted: list[tuple[Resource, str]], namespace: str, release: str
) -> list[ForeignObject] | Unasked:
    paths = (
        resource.object(namespace if resource.namespaced else "", name) for resource, name in wanted
    )
    answers = await asyncio.gather(
        *(questions.read(path, RegisteredConfiguration) for path in paths)
    )
    foreign = []
    for (resource, name), answer in zip(wanted, answers, strict=True):
        if isinstance(answer, Unasked):
            return answer
        if answer is None or answer.is_ours():
            continue
        owner = _owner(answer.metadata)
        if not _is_of(owner, namespace, release):
            foreign.append(ForeignObject(resource.kind, name, owner))
    return foreign


def _is_of(owner: str, namespace: str, release: str) -> bool:
    """Return whether an owner is this release, which may be given by the name of its objects."""
    space, _, name = owner.partition("/")
    return space == namespace and bool(name) and release in (name, full_name(name))


def _owner(metadata: ObjectMeta) -> str:
    """Return the release of an object, `NAMESPACE/NAME`, empty without one."""
    notes = metadata.annotations or {}
    if RELEASE not in notes:
        return ""
    return f"{notes.get(RELEASE_NAMESPACE, '')}/{notes[RELEASE]}"
