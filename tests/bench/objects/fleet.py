"""A fleet: Deployments with a ReplicaSet and pods each, as an API server stores them, numbered.

They are recorded objects with fresh names and uids, joined from pieces, so that their creation
costs almost nothing.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from ledger.kube.api.objects import Pod, Workload

RECORDED: Final = Path(__file__).parents[2] / "fixtures" / "admission" / "deployment-create.json"
VERSION: Final = 1_000
"""The resourceVersion of everything that is stored."""

_NAMESPACE, _DEPLOYMENT, _SET, _POD = "{{namespace}}", "{{deployment}}", "{{set}}", "{{pod}}"
_DEPLOYMENT_UID, _SET_UID, _POD_UID = "{{deployment-uid}}", "{{set-uid}}", "{{pod-uid}}"
_REPLICAS: Final = "{{replicas}}"


class Template:
    """A text with marks to be filled in, again and again."""

    def __init__(self, thing: Any) -> None:
        """Take a JSON value; the mark for the number of replicas is a string in it."""
        text = msgspec.json.encode(thing).decode().replace(f'"{_REPLICAS}"', _REPLICAS)
        pieces = text.replace("{{", "\0{{").replace("}}", "}}\0").split("\0")
        self._pieces = [piece.encode() for piece in pieces]

    def filled(self, marks: dict[bytes, bytes]) -> bytes:
        """Return the text with a value for each mark."""
        return b"".join(marks.get(piece, piece) for piece in self._pieces)


class Fleet(msgspec.Struct, frozen=True):
    """So many Deployments spread over namespaces, each with `pods` pods and room for `replicas`."""

    namespaces: int
    roots: int
    pods: int
    replicas: int

    def namespace(self, root: int) -> str:
        """Return where a Deployment is."""
        return f"team-{root % self.namespaces}"

    def deployment(self, root: int) -> bytes:
        """Return a Deployment as JSON."""
        return _DEPLOYMENTS.filled(self._marks(root))

    def replica_set(self, root: int) -> bytes:
        """Return the ReplicaSet of a Deployment as JSON."""
        return _SETS.filled(self._marks(root))

    def pod(self, root: int, number: int, generation: str = "a") -> bytes:
        """Return a pod of a Deployment as JSON; one of another generation is another pod."""
        name = f"web-{root}-675798b469-{generation}{number}"
        marks = self._marks(root)
        marks[_POD.encode()] = name.encode()
        marks[_POD_UID.encode()] = _uid(f"{ord(generation):x}", root * 10_000 + number)
        return _PODS.filled(marks)

    def members(self) -> Iterator[tuple[int, int]]:
        """Yield the Deployment's and its own number of every pod."""
        for root in range(self.roots):
            for number in range(self.pods):
                yield root, number

    def _marks(self, root: int) -> dict[bytes, bytes]:
        texts = {
            _NAMESPACE: self.namespace(root),
            _DEPLOYMENT: f"web-{root}",
            _SET: f"web-{root}-675798b469",
            _REPLICAS: str(self.replicas),
        }
        marks = {name.encode(): text.encode() for name, text in texts.items()}
        marks[_DEPLOYMENT_UID.encode()] = _uid("d0", root)
        marks[_SET_UID.encode()] = _uid("e0", root)
        return marks


def workload(thing: bytes) -> Workload:
    """Read a Deployment or ReplicaSet."""
    return msgspec.json.decode(thing, type=Workload)


def pod(thing: bytes) -> Pod:
    """Read a pod."""
    return msgspec.json.decode(thing, type=Pod)


def _uid(kind: str, number: int) -> bytes:
    return b"%s1f7a2c-0000-4000-8000-%012x" % (kind.encode(), number)


def _recorded(resource: str) -> dict[str, Any]:
    """Return the first object of a resource that the recorded request led to."""
    calls = msgspec.json.decode(RECORDED.read_bytes())["calls"]
    requests = (call["review"]["request"] for call in calls if call["webhook"] == "validate")
    manifest: dict[str, Any] = next(
        request["object"]
        for request in requests
        if request["resource"]["resource"] == resource and "subResource" not in request
    )
    return manifest


def _template(resource: str, name: str, uid: str, owner: tuple[str, str] | None) -> Template:
    thing = _recorded(resource)
    meta = thing["metadata"]
    meta.update(name=name, uid=uid, namespace=_NAMESPACE, resourceVersion=str(VERSION))
    if owner is not None:
        meta["ownerReferences"][0].update(name=owner[0], uid=owner[1])
    if "replicas" in thing["spec"]:
        thing["spec"]["replicas"] = _REPLICAS
    return Template(thing)


_DEPLOYMENTS: Final = _template("deployments", _DEPLOYMENT, _DEPLOYMENT_UID, None)
_SETS: Final = _template("replicasets", _SET, _SET_UID, (_DEPLOYMENT, _DEPLOYMENT_UID))
_PODS: Final = _template("pods", _POD, _POD_UID, (_SET, _SET_UID))
