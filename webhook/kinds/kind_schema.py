"""Kind schema: the fields of a kind's YAML document, decoded and checked.

An error in a document names the field, its value and the value to write instead.
"""

from functools import cached_property
from itertools import chain
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from webhook.kinds.expressions import KindExpression
from webhook.kinds.template_paths import FieldPath

POD_SETS_MAX: Final = 16
"""Maximum number of pod sets of one kind."""

CONTROLLERS_MAX: Final = 32
"""Maximum number of controller identities of one kind."""

ONE: Final = KindExpression("1")

_GROUP: Final = Meta(pattern=r"^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?)?$")
_RESOURCE: Final = Meta(pattern=r"^[a-z][a-z0-9]{0,62}$")
_KIND: Final = Meta(pattern=r"^[A-Z][A-Za-z0-9]{0,62}$")


class _Document(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """A part of a kind's document: a misspelled field is an error."""


class PodSet(_Document, frozen=True, kw_only=True):
    """The pods of one template, and their number.

    One of `template`, `pod_spec` and `resources` is the path to a PodTemplateSpec, to a bare
    PodSpec, or to the limits and requests of the only container that requests resources. An object
    without a value at this path has no such pods.

    `count` is the number of pods that may run at once, `elastic_count` the largest number under an
    autoscaler. `surge` is the number of additional pods that a rollout may run, `surge_least` the
    number that it needs to end; both may name `count`.
    """

    template: FieldPath | None = None
    pod_spec: FieldPath | None = None
    resources: FieldPath | None = None
    count: KindExpression = ONE
    elastic_count: KindExpression | None = None
    surge: KindExpression | None = None
    surge_least: KindExpression | None = None

    def __post_init__(self) -> None:
        """Check fields against one another."""
        given = [
            path for path in (self.template, self.pod_spec, self.resources) if path is not None
        ]
        if len(given) != 1:
            raise ValueError("write exactly one of template, podSpec and resources")
        for field in ("count", "elastic_count", "surge", "surge_least"):
            expression: KindExpression | None = getattr(self, field)
            if expression is None:
                continue
            if not given[0].walk and not expression.names.isdisjoint(("item", "key")):
                raise ValueError(
                    f"{expression.text!r} names item or key, and {given[0].text!r} walks over no"
                    " elements: add [*] or .* to it, or write a path from spec"
                )
            if field in ("count", "elastic_count") and "count" in expression.names:
                raise ValueError(f"{expression.text!r} would count by itself: do not name count")

    @property
    def path(self) -> FieldPath:
        """The path to a template, a PodSpec or resources."""
        field_path = self.template or self.pod_spec or self.resources
        assert field_path is not None, "checked when the document was decoded"
        return field_path


class WorkloadKind(_Document, frozen=True, kw_only=True, dict=True):
    """A kind of workload, in every version that is served of it.

    `controllers` are the users that may create the objects that an object of this kind controls.
    `suspended` is true while the object runs no pods, `finished` if it never will again. `scale` is
    the field that its scale subresource changes. `rolled_out` is true if no surge will follow.
    Without `root`, objects of the kind are not charged, because the objects that they create are.
    """

    group: Annotated[str, _GROUP]
    resource: Annotated[str, _RESOURCE]
    kind: Annotated[str, _KIND]
    root: bool = True
    pod_sets: Annotated[tuple[PodSet, ...], Meta(min_length=1, max_length=POD_SETS_MAX)]
    suspended: KindExpression | None = None
    finished: KindExpression | None = None
    scale: FieldPath | None = None
    rolled_out: KindExpression | None = None
    controllers: Annotated[tuple[str, ...], Meta(max_length=CONTROLLERS_MAX)] = ()

    def __post_init__(self) -> None:
        """Check fields against one another."""
        if not self.group and self.resource == "pods":
            raise ValueError("pods are not a kind of workload: they are charged directly")
        if self.scale is not None and (self.scale.walk or self.scale.before[0] != "spec"):
            raise ValueError(f"scale is {self.scale.text!r}: write the path of one number in spec")
        for expression in (self.suspended, self.finished, self.rolled_out):
            if expression and not expression.names <= {"metadata", "spec", "status"}:
                raise ValueError(
                    f"{expression.text!r} is about the whole object: write paths from metadata,"
                    " spec and status"
                )

    @cached_property
    def name(self) -> str:
        """The resource as keys name it: `deployments.apps`."""
        return f"{self.resource}.{self.group}" if self.group else self.resource

    @property
    def counts_by_annotations(self) -> bool:
        """Whether annotations of an object may change its charge."""
        of_sets = (
            (pod_set.count, pod_set.elastic_count, pod_set.surge, pod_set.surge_least)
            for pod_set in self.pod_sets
        )
        whole = (self.suspended, self.finished, self.rolled_out)
        return any(
            expression.reads_annotations
            for expression in chain(whole, *of_sets)
            if expression is not None
        )


def decode(document: Any) -> WorkloadKind:
    """Return the kind that a decoded YAML document describes.

    Raises msgspec.ValidationError that names the field, its value and what to write instead.
    """
    return msgspec.convert(document, WorkloadKind, dec_hook=_compiled)


def _compiled(form: type, written: Any) -> FieldPath | KindExpression:
    """Compile a text of a document. Raises ValueError; the decoder adds the field."""
    if form is FieldPath:
        if isinstance(written, str):
            return FieldPath(written)
        raise ValueError(f"{written!r} is not a path: write a text")
    if isinstance(written, bool):
        return KindExpression("true" if written else "false")
    if isinstance(written, str | int):
        return KindExpression(written)
    raise ValueError(f"{written!r} is not an expression: write a text or a number")
