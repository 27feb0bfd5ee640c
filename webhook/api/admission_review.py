"""AdmissionReview v1 on the wire: the parts of a review that are read, and its answer.

The object under review stays raw JSON until its kind is looked up, so a review of a kind that is
not handled costs nothing and can never fail to decode.
"""

import re
from functools import cached_property
from typing import Final, Literal, TypeVar

import msgspec

from ledger.core.model.denials import Denial, sentence
from ledger.kube.api.objects import ObjectMeta, Pod, ResourceQuota, Workload
from ledger.kube.resource_claims.dra_objects import ResourceClaim, ResourceClaimTemplate

MUTATE_PATH: Final = "/admission/mutate"
VALIDATE_PATH: Final = "/admission/validate"

API_VERSION: Final = "admission.k8s.io/v1"
KIND: Final = "AdmissionReview"

WARNING_CHARACTERS_MAX: Final = 256
"""Longer warnings may be cut by the API server, which drops all when they get too many."""

FORBIDDEN: Final = 403
"""Every denial is a plain 403. Not 429: its Retry-After makes clients repeat the same request at
once, which an overloaded ledger needs least and an exceeded quota never profits from."""

NAME_CHARACTERS_MAX: Final = 253
"""Longest name of a Kubernetes object."""


T = TypeVar("T")


class BadReview(Exception):
    """The bytes are not a valid review; `field` is the JSON path of the mistake."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field
        self.message = message


class GroupKind(msgspec.Struct, frozen=True, gc=False):
    """The kind of the object under review, `group` empty for the core."""

    group: str = ""
    kind: str = ""


class GroupResource(msgspec.Struct, frozen=True, gc=False):
    """The resource the request was made to, `group` empty for the core."""

    group: str = ""
    resource: str = ""
    version: str = ""

    @property
    def name(self) -> str:
        """The name in every version, as keys have it: `deployments.apps`, `pods`."""
        return f"{self.resource}.{self.group}" if self.group else self.resource


class UserInfo(msgspec.Struct, frozen=True, gc=False):
    """The user that made the request, as the API server authenticated them."""

    username: str = ""
    groups: tuple[str, ...] = ()


class AdmissionRequest(msgspec.Struct, frozen=True, rename="camel", dict=True):
    """One admission request. `uid` names this call only, never the object or its attempt."""

    uid: str
    operation: str
    kind: GroupKind
    resource: GroupResource
    sub_resource: str = ""
    name: str = ""
    namespace: str = ""
    user_info: UserInfo = UserInfo()
    object: msgspec.Raw = msgspec.Raw(b"null")
    old_object: msgspec.Raw = msgspec.Raw(b"null")
    dry_run: bool | None = None

    @cached_property
    def is_pods(self) -> bool:
        """Whether the request is about pods, or about a subresource of pods."""
        return self.resource.resource == "pods" and not self.resource.group

    @property
    def can_annotate_pod(self) -> bool:
        """Whether the request can write the annotations of a pod."""
        if self.is_pods:
            if self.sub_resource == "binding":
                return self.operation == "CREATE"
            if self.sub_resource == "status":
                return self.operation == "UPDATE"
            return self.operation in ("CREATE", "UPDATE")
        return self.resource.name == "bindings" and self.operation == "CREATE"


class AdmissionStatusCause(msgspec.Struct, frozen=True):
    """One cause of a denial: our reason, a sentence and the field or quota key."""

    reason: str
    message: str
    field: str


class AdmissionStatusDetails(msgspec.Struct, frozen=True, omit_defaults=True):
    """The object and the causes of a denial, for programs."""

    name: str = ""
    kind: str = ""
    causes: tuple[AdmissionStatusCause, ...] = ()


class AdmissionStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why the request was refused, as the client gets it."""

    message: str
    reason: str
    code: int
    details: AdmissionStatusDetails = AdmissionStatusDetails()
    status: str = "Failure"


class AdmissionResponse(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The answer to one request; `patch` is a JSON patch, base64 on the wire."""

    uid: str
    allowed: bool
    status: AdmissionStatus | None = None
    warnings: tuple[str, ...] = ()
    audit_annotations: dict[str, str] = {}
    patch_type: str = ""
    patch: bytes = b""


class _Incoming(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str
    kind: str
    request: AdmissionRequest


class AnsweredAdmissionReview(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The AdmissionReview that answers one."""

    api_version: str = API_VERSION
    kind: str = KIND
    response: AdmissionResponse


UNDECODABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""Errors that decoding raises on invalid bytes."""

_reviews: Final = msgspec.json.Decoder(_Incoming)
_MISSING: Final = re.compile(r"missing required field `(\w+)`")
_PLACE: Final = re.compile(r" - at `([^`]*)`$")


def decode(body: bytes) -> AdmissionRequest:
    """Read a review. Raises BadReview naming the field."""
    try:
        review = _reviews.decode(body)
    except UNDECODABLE as error:
        raise bad_review(error, "$") from error
    if review.kind != KIND:
        raise BadReview("$.kind", f"{review.kind[:64]!r} is not {KIND}")
    if review.api_version != API_VERSION:
        raise BadReview(
            "$.apiVersion", f"{review.api_version[:64]!r} is not supported, send {API_VERSION}"
        )
    request = review.request
    if not request.uid:
        raise BadReview("$.request.uid", "is empty")
    for field, name in (("namespace", request.namespace), ("name", request.name)):
        if len(name) > NAME_CHARACTERS_MAX or "/" in name:
            raise BadReview(f"$.request.{field}", f"{name[:64]!r} is not a Kubernetes name")
    return request


class _Any(msgspec.Struct, frozen=True, gc=False):
    """An object of any kind, of which only the metadata matters."""

    metadata: ObjectMeta = ObjectMeta()


Field = Literal["object", "oldObject"]
"""The fields of a review with the object and with the object before the change."""


class ScaleSpec(msgspec.Struct, frozen=True, gc=False):
    """How many replicas are wanted."""

    replicas: int = 0


class Scale(msgspec.Struct, frozen=True, gc=False):
    """The scale of an object, with the object's own name, uid and resourceVersion."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ScaleSpec = ScaleSpec()


def required_metadata(request: AdmissionRequest, field: Field) -> ObjectMeta:
    """Read the metadata of an object of any kind under review. Raises BadReview."""
    return _required(_metadata, request, field).metadata


def optional_metadata(request: AdmissionRequest, field: Field) -> ObjectMeta | None:
    """Read the metadata of an object under review, None where there is none. Raises BadReview."""
    decoded = _read(_metadata, request, field)
    return None if decoded is None else decoded.metadata


def required_pod(request: AdmissionRequest, field: Field) -> Pod:
    """Read a pod under review. Raises BadReview."""
    return _required(_pods, request, field)


def required_workload(request: AdmissionRequest, field: Field) -> Workload:
    """Read an object of any kind under review. Raises BadReview."""
    return _required(_workloads, request, field)


def required_scale(request: AdmissionRequest, field: Field) -> Scale:
    """Read a scale under review. Raises BadReview."""
    return _required(_scales, request, field)


def required_quota(request: AdmissionRequest, field: Field) -> ResourceQuota:
    """Read a ResourceQuota under review. Raises BadReview."""
    return _required(_quotas, request, field)


def required_claim(request: AdmissionRequest, field: Field) -> ResourceClaim:
    """Read a ResourceClaim under review. Raises BadReview."""
    return _required(_claims, request, field)


def required_claim_template(request: AdmissionRequest, field: Field) -> ResourceClaimTemplate:
    """Read a ResourceClaimTemplate under review. Raises BadReview."""
    return _required(_claim_templates, request, field)


def _required(
    decoder: msgspec.json.Decoder[T | None], request: AdmissionRequest, field: Field
) -> T:
    decoded = _read(decoder, request, field)
    if decoded is None:
        raise BadReview(f"$.request.{field}", "is missing")
    return decoded


def _read(
    decoder: msgspec.json.Decoder[T | None], request: AdmissionRequest, field: Field
) -> T | None:
    raw = request.object if field == "object" else request.old_object
    try:
        return decoder.decode(raw)
    except UNDECODABLE as error:
        raise bad_review(error, f"$.request.{field}") from error


_metadata: Final[msgspec.json.Decoder[_Any | None]] = msgspec.json.Decoder(_Any | None)
_pods: Final[msgspec.json.Decoder[Pod | None]] = msgspec.json.Decoder(Pod | None)
_workloads: Final[msgspec.json.Decoder[Workload | None]] = msgspec.json.Decoder(Workload | None)
_scales: Final[msgspec.json.Decoder[Scale | None]] = msgspec.json.Decoder(Scale | None)
_quotas: Final[msgspec.json.Decoder[ResourceQuota | None]] = msgspec.json.Decoder(
    ResourceQuota | None
)

_claims: Final[msgspec.json.Decoder[ResourceClaim | None]] = msgspec.json.Decoder(
    ResourceClaim | None
)
_claim_templates: Final[msgspec.json.Decoder[ResourceClaimTemplate | None]] = msgspec.json.Decoder(
    ResourceClaimTemplate | None
)


def denied_status(request: AdmissionRequest, denial: Denial) -> AdmissionStatus:
    """Return the status of a refusal: one sentence for people, causes for programs."""
    details = AdmissionStatusDetails(request.name, request.kind.kind, _causes(denial))
    return AdmissionStatus(sentence(denial), "Forbidden", FORBIDDEN, details)


def warning(text: str) -> str:
    """Return a warning no longer than clients show."""
    if len(text) <= WARNING_CHARACTERS_MAX:
        return text
    return f"{text[: WARNING_CHARACTERS_MAX - 1]}…"


def _causes(denial: Denial) -> tuple[AdmissionStatusCause, ...]:
    lines = [shortage for shortage in denial.shortages if shortage.message]
    if lines:
        return tuple(
            AdmissionStatusCause(shortage.reason, shortage.message, shortage.resource)
            for shortage in lines
        )
    return (AdmissionStatusCause(denial.reason, denial.message, denial.field),)


def bad_review(error: Exception, root: str) -> BadReview:
    """Return a decoding error with the field and the mistake."""
    text = str(error)
    place = _PLACE.search(text)
    field = root + (place[1].removeprefix("$") if place else "")
    missing = _MISSING.search(text)
    if missing:
        return BadReview(f"{field}.{missing[1]}", "is missing")
    if isinstance(error, RecursionError):
        return BadReview(field, "is nested too deeply")
    return BadReview(field, _PLACE.sub("", text))
