"""Pod templates: one pod for each template of an object, decoded like a real pod."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final, TypeVar

import msgspec

from ledger.core.model.denials import Denial, Reason
from ledger.kube.api.objects import Container, ObjectMeta, Pod, PodSpec, Resources, Workload
from webhook.kinds.kind_schema import PodSet, WorkloadKind
from webhook.kinds.object_values import ExpressionScope, Json, invalid_object, wrong_type
from webhook.kinds.template_paths import PathMatch

_CONTAINER: Final = "spec.containers[0].resources"
"""The field of the resources in a pod that is made from resources alone."""

_Form = TypeVar("_Form", bound=msgspec.Struct)

_NOTHING: Final[Mapping[str, Json]] = MappingProxyType({})


class Template(msgspec.Struct, frozen=True):
    """One template of an object: a pod made from it, its pod set, and the scope of its count."""

    pod: Pod
    pods: PodSet
    field: str
    scope: ExpressionScope

    def moved(self, field: str) -> str:
        """Return the object's field that became this field of the pod."""
        if self.pods.template is not None:
            return f"{self.field}.{field}"
        inside = _CONTAINER if self.pods.resources is not None else "spec"
        return self.field + field.removeprefix(inside)

    def refused(self, denial: Denial) -> Denial:
        """Return a denial of the pod as one of the object."""
        return msgspec.structs.replace(denial, field=self.moved(denial.field))


def names_of(workload: Workload) -> dict[str, Json]:
    """Return the parts of an object that expressions may name."""
    meta = workload.metadata
    return {
        "metadata": {
            "name": meta.name,
            "generation": meta.generation,
            "labels": meta.labels,
            "annotations": meta.annotations,
        },
        "spec": workload.spec,
        "status": workload.status,
    }


def templates_of(kind: WorkloadKind, workload: Workload) -> Iterator[Template]:
    """Yield the templates of an object in the order of its kind's document.

    Raises InvalidObject.
    """
    names = names_of(workload)
    for pods in kind.pod_sets:
        for place in pods.path.places(names):
            pod = _placed(_pod(pods, place), workload.metadata)
            yield Template(pod, pods, place.field, _scope(pods, place, names))


def _scope(pods: PodSet, place: PathMatch, names: dict[str, Json]) -> ExpressionScope:
    if pods.path.walk:
        names = {**names, "item": place.item, "key": place.key}
    return ExpressionScope(names, place.item_field)


def _pod(pods: PodSet, place: PathMatch) -> Pod:
    """Return a pod made from the template. Raises InvalidObject."""
    value = place.value
    if pods.template is not None:
        whole = _object(place.field, value)
        meta = _read(whole.get("metadata") or _NOTHING, ObjectMeta, f"{place.field}.metadata")
        return Pod(meta, _read(whole.get("spec") or _NOTHING, PodSpec, f"{place.field}.spec"))
    if pods.pod_spec is not None:
        return Pod(spec=_read(value, PodSpec, place.field))
    resources = _read(value, Resources, place.field)
    return Pod(spec=PodSpec([Container(place.field, resources=resources)]))


def _placed(pod: Pod, owner: ObjectMeta) -> Pod:
    """Return a pod with resource claims as one of its owner: in its namespace, without a uid.

    Its resourceVersion and creation are those of the owner, because the pod is as new or stored as
    the owner. The template may name others, which the API server ignores.
    """
    if not pod.spec.resource_claims:
        return pod
    metadata = msgspec.structs.replace(
        pod.metadata,
        namespace=owner.namespace,
        uid="",
        resource_version=owner.resource_version,
        creation_timestamp=owner.creation_timestamp,
    )
    return msgspec.structs.replace(pod, metadata=metadata)


def _object(field: str, value: Json) -> Mapping[str, Json]:
    if isinstance(value, dict):
        return value
    raise wrong_type(field, value, "an object")


def _read(value: Json, form: type[_Form], field: str) -> _Form:
    """Return a decoded part of an object. Raises InvalidObject, which names the field."""
    try:
        return msgspec.convert(value, form)
    except msgspec.ValidationError as error:
        wrong, _, inside = str(error).partition(" - at `$")
        place = field + inside.rstrip("`")
        raise invalid_object(
            f"{place} cannot be read: {wrong[:1].lower()}{wrong[1:]}",
            place,
            "",
            "Write it as in a pod",
            Reason.INVALID_REVIEW,
        ) from error
