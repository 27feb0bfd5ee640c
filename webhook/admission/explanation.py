"""Explanation: the decision that a request would get, computed as a dry run.

The request takes the same path as in the validating webhook, so an explanation cannot differ from
the decision.
"""

import asyncio
from typing import Final

import msgspec

from ledger.core.model.amounts import Amounts
from ledger.core.model.denials import Denial, sentence
from ledger.core.model.qualified_names import qualified
from ledger.kube.api.api_resources import CLAIM_TEMPLATES, CLAIMS
from ledger.kube.api.objects import ObjectMeta
from webhook.admission.validating_webhook import ValidatingWebhook
from webhook.admission.verdict import Verdict
from webhook.api.admission_review import (
    API_VERSION,
    KIND,
    UNDECODABLE,
    AdmissionRequest,
    BadReview,
    GroupKind,
    GroupResource,
    UserInfo,
    bad_review,
    decode,
    optional_metadata,
    required_workload,
)
from webhook.context.cluster_context import ClusterContext
from webhook.kinds.kind_catalog import KindCatalog

_OBJECT: Final = "$.request.object"
"""The field of a review that holds the manifest."""

UID: Final = "explain"
"""The uid of an explained object that has none, because it does not exist."""

NAMESPACE: Final = "default"
"""The namespace of an object that names none, if the caller names none either."""

NAME_SHOWN_MAX: Final = 64
"""Characters of a name that an error shows, which is the maximum length of a namespace's name."""


class Explanation(msgspec.Struct, frozen=True):
    """The decision: `answer` in one sentence, `denial` with all its numbers."""

    allowed: bool
    answer: str
    namespace: str
    key: str
    demand: Amounts
    denial: Denial | None
    warnings: tuple[str, ...]


class _Manifest(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str
    kind: str
    metadata: ObjectMeta = ObjectMeta()


class OtherNamespace(Exception):
    """The namespace of the object differs from the requested one."""

    def __init__(self, namespace: str, asked: str) -> None:
        """Store the namespace of the object; the message names both namespaces."""
        super().__init__(
            f"the object is of namespace {namespace[:NAME_SHOWN_MAX]!r}, which does not match the"
            f" namespace {asked[:NAME_SHOWN_MAX]!r} that was asked for: give both the same, or"
            " leave one out"
        )
        self.namespace = namespace


class NamespaceMissing(Exception):
    """The namespace does not exist; the message names it and its cluster."""


async def explain(
    validating: ValidatingWebhook,
    body: bytes,
    *,
    deadline: float,
    username: str = "",
    namespace: str | None = None,
    own_holders: bool = False,
) -> Explanation:
    """Explain an AdmissionReview, or the creation of a bare manifest, given as JSON.

    A manifest describes a Pod, an object of any known kind, a ResourceClaim or a template of
    claims. `username` and `namespace` are used where `body` has none; `deadline` is in seconds.
    With `own_holders`, for callers who may not list holders in all namespaces, a denial names no
    other namespace. Raises OtherNamespace if the namespace of the object differs from `namespace`,
    NamespaceMissing if the namespace does not exist, and BadReview, which names the field.
    """
    try:
        manifest = msgspec.json.decode(body, type=_Manifest)
    except UNDECODABLE as error:
        raise bad_review(error, "$") from error
    if manifest.kind == KIND:
        request = decode(body)
    else:
        request = _creation(body, manifest, validating.context.catalog)
        request = msgspec.structs.replace(
            request,
            namespace=manifest.metadata.namespace or namespace or NAMESPACE,
            user_info=UserInfo(username),
        )
    until = asyncio.get_running_loop().time() + deadline
    try:
        request = await _checked(validating, request, namespace, until)
        verdict = await validating.decide(request, until, own_holders=own_holders)
    except BadReview as error:
        if manifest.kind == KIND:
            raise
        raise BadReview(error.field.replace(_OBJECT, "$", 1), error.message) from error
    return _explained(verdict, qualified(validating.context.name, request.namespace))


async def _checked(
    validating: ValidatingWebhook, request: AdmissionRequest, namespace: str | None, until: float
) -> AdmissionRequest:
    """Return a request as a dry run, checked until a loop time. Raises as `explain`."""
    _require(request, namespace)
    if namespace or request.namespace != NAMESPACE or validating.context.is_watched():
        await _must_exist(request.namespace, validating.context, until)
    return msgspec.structs.replace(_persistable(request), dry_run=True)


def _require(request: AdmissionRequest, namespace: str | None) -> None:
    """Raise OtherNamespace if a request is about another namespace than this one."""
    if namespace is None:
        return
    metadata = (optional_metadata(request, "object"), optional_metadata(request, "oldObject"))
    for named in (request.namespace, *(meta.namespace for meta in metadata if meta is not None)):
        if named not in ("", namespace):
            raise OtherNamespace(named, namespace)


async def _must_exist(namespace: str, context: ClusterContext, until: float) -> None:
    """Raise NamespaceMissing if the namespace is known not to exist."""
    if not namespace or await context.has_namespace(namespace, until) is not False:
        return
    shown = f"namespace {namespace[:NAME_SHOWN_MAX]!r}"
    if context.is_watched():
        raise NamespaceMissing(
            f"{shown} does not exist in cluster {context.name}: create it, or name another"
        )
    raise NamespaceMissing(
        f"{shown} of cluster {context.name} is not in the ledger: no quota covers it and no"
        " object of it was reviewed, so nothing is limited there; name another, or set a quota"
    )


def _creation(body: bytes, manifest: _Manifest, catalog: KindCatalog) -> AdmissionRequest:
    """Return the request that would create a bare manifest. Raises BadReview."""
    return AdmissionRequest(
        uid=UID,
        operation="CREATE",
        kind=GroupKind(kind=manifest.kind),
        resource=_resource(manifest, catalog),
        name=manifest.metadata.name,
        object=msgspec.Raw(body),
    )


def _resource(manifest: _Manifest, catalog: KindCatalog) -> GroupResource:
    """Return the resource of a manifest. Raises BadReview for kinds that are never charged."""
    if (manifest.api_version, manifest.kind) == ("v1", "Pod"):
        return GroupResource(resource="pods")
    for resource in (CLAIMS, CLAIM_TEMPLATES):
        if (manifest.api_version, manifest.kind) == (resource.api_version, resource.kind):
            return GroupResource(resource.group, resource.plural, resource.version)
    kind = catalog.of_owner(manifest.api_version, manifest.kind)
    if kind is None:
        raise BadReview(
            "$.kind",
            f"{manifest.kind[:64]!r} of {manifest.api_version[:64]!r} cannot be explained: give a"
            f" Pod, a workload of a known kind, a {CLAIMS.kind} or an {KIND} of {API_VERSION}",
        )
    return GroupResource(kind.group, kind.resource, manifest.api_version.rpartition("/")[2])


def _persistable(request: AdmissionRequest) -> AdmissionRequest:
    """Return a creation with the uid and the name that the API server would have set."""
    if request.operation != "CREATE" or request.sub_resource:
        return request
    meta = required_workload(request, "object").metadata
    name = request.name or meta.name or f"{meta.generate_name}{UID}"
    document = msgspec.json.decode(request.object)
    metadata = document.setdefault("metadata", {})
    metadata.update(uid=meta.uid or UID, namespace=meta.namespace or request.namespace)
    return msgspec.structs.replace(
        request, name=name, object=msgspec.Raw(msgspec.json.encode(document))
    )


def _explained(verdict: Verdict, namespace: str) -> Explanation:
    """Return the explanation; a verdict about an unusable name has no namespace of its own."""
    if verdict.denial is not None:
        answer = sentence(verdict.denial)
    elif verdict.demand:
        answer = "Allowed: there is room."
    else:
        answer = "Allowed: nothing would be charged."
    return Explanation(
        verdict.denial is None,
        answer,
        verdict.namespace or namespace,
        verdict.key,
        verdict.demand,
        verdict.denial,
        verdict.warnings,
    )
