"""Explaining: the decision a request would get, without making it.

The very same path as the validating webhook takes, as a dry run, so an explanation cannot differ
from the decision it explains.
"""

import asyncio
from typing import Final

import msgspec

from ledger.core.amounts import Amounts
from ledger.core.denials import Denial, sentence
from ledger.kube.objects import ObjectMeta
from webhook.review import (
    API_VERSION,
    KIND,
    UNDECODABLE,
    BadReview,
    GroupKind,
    GroupResource,
    Request,
    UserInfo,
    bad_review,
    decode,
    required_pod,
)
from webhook.validating import Validating
from webhook.verdict import Verdict

UID: Final = "explain"
"""The uid of an explained object that has none, because nobody has created it."""


class Explanation(msgspec.Struct, frozen=True):
    """What would happen: `answer` in one sentence, `denial` with all its numbers."""

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


async def explain(
    validating: Validating,
    body: bytes,
    *,
    deadline: float,
    username: str = "",
    namespace: str = "default",
) -> Explanation:
    """Explain an AdmissionReview, or the creation of a bare Pod manifest, given as JSON.

    `username` and `namespace` stand in for what a bare manifest does not say; `deadline` is in
    seconds. Raises BadReview naming the field.
    """
    try:
        manifest = msgspec.json.decode(body, type=_Manifest)
    except UNDECODABLE as error:
        raise bad_review(error, "$") from error
    if manifest.kind == KIND:
        request = decode(body)
    elif (manifest.api_version, manifest.kind) == ("v1", "Pod"):
        request = _creation(body, manifest.metadata, username, namespace)
    else:
        raise BadReview(
            "$.kind",
            f"{manifest.kind[:64]!r} of {manifest.api_version[:64]!r} cannot be explained: give a"
            f" Pod of v1 or an {KIND} of {API_VERSION}",
        )
    request = msgspec.structs.replace(_persistable(request), dry_run=True)
    until = asyncio.get_running_loop().time() + deadline
    return _explained(await validating.judge(request, until))


def _creation(body: bytes, meta: ObjectMeta, username: str, namespace: str) -> Request:
    """Return the request that would create a bare manifest."""
    return Request(
        uid=UID,
        operation="CREATE",
        kind=GroupKind(kind="Pod"),
        resource=GroupResource(resource="pods"),
        name=meta.name,
        namespace=meta.namespace or namespace,
        user_info=UserInfo(username),
        object=msgspec.Raw(body),
    )


def _persistable(request: Request) -> Request:
    """Return a creation with the uid and the name that the API server would have given it."""
    if request.operation != "CREATE" or not request.is_pods() or request.sub_resource:
        return request
    meta = required_pod(request, "object").metadata
    name = request.name or meta.name or f"{meta.generate_name}{UID}"
    found = msgspec.json.decode(request.object)
    found.setdefault("metadata", {}).update(uid=meta.uid or UID, name=name)
    return msgspec.structs.replace(
        request, name=name, object=msgspec.Raw(msgspec.json.encode(found))
    )


def _explained(verdict: Verdict) -> Explanation:
    if verdict.denial is not None:
        answer = sentence(verdict.denial)
    elif verdict.demand:
        answer = "Allowed: there is room."
    else:
        answer = "Allowed: nothing would be charged."
    return Explanation(
        verdict.denial is None,
        answer,
        verdict.namespace,
        verdict.key,
        verdict.demand,
        verdict.denial,
        verdict.warnings,
    )
