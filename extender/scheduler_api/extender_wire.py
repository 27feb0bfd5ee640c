"""The extender API v1 of kube-scheduler: requests and answers.

Field names are those of the Go types, which have no JSON tags: capitalised. Go reads them in any
case of letters, and other callers send other cases; see `extender.scheduler_api.field_case`.
"""

from typing import Any, Final, TypeVar

import msgspec

from extender.scheduler_api import field_case
from ledger.kube.api.objects import Pod

T = TypeVar("T")

SCORE_MAX: Final = 10
"""The score of the best node; kube-scheduler multiplies it by the extender's weight."""


class BadRequest(Exception):
    """A body that is not a request of the extender API; `field` is the place of the error."""

    def __init__(self, message: str, field: str) -> None:
        super().__init__(message)
        self.message = message
        self.field = field


class ExtenderUnavailable(Exception):
    """The request cannot be answered now; the message is the reason."""


class NodeMeta(msgspec.Struct, frozen=True, gc=False):
    """The name and annotations of a Node."""

    name: str = ""
    annotations: dict[str, str] | None = None


class NodeObject(msgspec.Struct, frozen=True, gc=False):
    """The part of a Node that is read; the rest is passed through unchanged."""

    metadata: NodeMeta = NodeMeta()


class RawNodeList(msgspec.Struct, frozen=True):
    """Nodes in full, each as the bytes that arrived."""

    metadata: dict[str, Any] = {}
    items: list[msgspec.Raw] | None = None


class ExtenderArgs(msgspec.Struct, frozen=True, rename="pascal"):
    """A pod and its candidate nodes; `node_names` if the scheduler sends names only."""

    pod: Pod | None = None
    nodes: RawNodeList | None = None
    node_names: list[str] | None = None


class FilterResult(msgspec.Struct, frozen=True, rename="pascal"):
    """The feasible nodes, in the form of the request, and the reasons of the other nodes.

    Evictions may help on `failed_nodes`, but not on `failed_and_unresolvable_nodes`.
    """

    nodes: RawNodeList | None = None
    node_names: list[str] | None = None
    failed_nodes: dict[str, str] = {}
    failed_and_unresolvable_nodes: dict[str, str] = {}
    error: str = ""


class HostPriority(msgspec.Struct, frozen=True, rename="pascal", gc=False):
    """How well a pod fits on a node, 0 to 10."""

    host: str
    score: int


class BindingArgs(msgspec.Struct, frozen=True, rename="pascal"):
    """A pod to be bound to a node."""

    pod_name: str = ""
    pod_namespace: str = ""
    pod_uid: str = msgspec.field(default="", name="PodUID")
    node: str = ""


class BindingResult(msgspec.Struct, frozen=True, rename="pascal"):
    """The problem because of which the pod was not bound, empty if it was."""

    error: str = ""


class MetaPod(msgspec.Struct, frozen=True, rename="pascal", gc=False):
    """A pod by its uid alone."""

    uid: str = msgspec.field(default="", name="UID")


class Victims(msgspec.Struct, frozen=True, rename="pascal"):
    """Pods of a node that the scheduler would evict, and how many budgets that would break."""

    pods: list[Pod] | None = None
    num_pdb_violations: int = msgspec.field(default=0, name="NumPDBViolations")


class MetaVictims(msgspec.Struct, frozen=True, rename="pascal"):
    """The same, by uids."""

    pods: list[MetaPod] | None = None
    num_pdb_violations: int = msgspec.field(default=0, name="NumPDBViolations")


class PreemptionArgs(msgspec.Struct, frozen=True, rename="pascal"):
    """A pod that fits nowhere, and by node the victims that the scheduler would evict."""

    pod: Pod | None = None
    node_name_to_victims: dict[str, Victims] | None = None
    node_name_to_meta_victims: dict[str, MetaVictims] | None = None


class PreemptionResult(msgspec.Struct, frozen=True, rename="pascal"):
    """The nodes where evicting these victims makes the pod fit."""

    node_name_to_meta_victims: dict[str, MetaVictims] = {}


_UNDECODABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_args: Final = msgspec.json.Decoder(ExtenderArgs)
_bindings: Final = msgspec.json.Decoder(BindingArgs)
_preemptions: Final = msgspec.json.Decoder(PreemptionArgs)
_nodes: Final = msgspec.json.Decoder(NodeObject)


def read_args(body: bytes) -> ExtenderArgs:
    """Read a request of filter, select or prioritize. Raises BadRequest."""
    args = _read(_args, body)
    if _nameless(args.pod) or (args.nodes is None and args.node_names is None):
        args = _respelled(ExtenderArgs, body)
    if args.pod is None:
        raise BadRequest("the request has no pod", "Pod")
    return args


def read_binding(body: bytes) -> BindingArgs:
    """Read a request of bind. Raises BadRequest."""
    binding = _read(_bindings, body)
    if not all(msgspec.structs.astuple(binding)):
        binding = _respelled(BindingArgs, body)
    for field in msgspec.structs.fields(BindingArgs):
        if not getattr(binding, field.name) and field.name != "pod_uid":
            raise BadRequest(f"the request has no {field.encode_name}", field.encode_name)
    return binding


def read_preemption(body: bytes) -> PreemptionArgs:
    """Read a request of preempt. Raises BadRequest."""
    args = _read(_preemptions, body)
    if _nameless(args.pod):
        args = _respelled(PreemptionArgs, body)
    if args.pod is None:
        raise BadRequest("the request has no pod", "Pod")
    return args


def read_node(raw: msgspec.Raw) -> NodeMeta:
    """Read name and annotations of a Node. Raises BadRequest."""
    node = _read(_nodes, raw)
    if not node.metadata.name:
        node = _respelled(NodeObject, raw)
    if not node.metadata.name:
        raise BadRequest("a node has no name", "Nodes.items[].metadata.name")
    return node.metadata


def _nameless(pod: Pod | None) -> bool:
    return pod is None or not (pod.metadata.name and pod.metadata.uid)


def _read(decoder: msgspec.json.Decoder[T], body: bytes | msgspec.Raw) -> T:
    try:
        return decoder.decode(body)
    except _UNDECODABLE as error:
        raise _bad(error) from error


def _respelled(kind: type[T], body: bytes | msgspec.Raw) -> T:
    """Read a body whose names are not spelt as Go writes them."""
    try:
        return msgspec.convert(field_case.respelled(msgspec.json.decode(body), kind), kind)
    except _UNDECODABLE as error:
        raise _bad(error) from error


def _bad(error: Exception) -> BadRequest:
    if isinstance(error, RecursionError):
        return BadRequest("it is nested too deeply", "$")
    text, _, field = str(error).rpartition(" - at `")
    return BadRequest(text or str(error), field.rstrip("`") if text else "$")
