"""Recordings: the reviews that a real API server sent for created pods.

One file per recorded creation, with the review to the mutating and the one to the validating
webhook, without `managedFields`. A `Creation` is such a recording with a namespace, a name and
uids of its own; nothing else is changed.
"""

import itertools
import uuid
from collections.abc import Sequence
from copy import deepcopy
from importlib import resources
from typing import Any, Final

import msgspec

Review = dict[str, Any]
Patch = list[dict[str, Any]]

_FOLDER: Final = "recorded"


class RecordedCreation(msgspec.Struct, frozen=True):
    """One recorded creation: which case, by which server, and the review to each webhook."""

    case: str
    server: str
    mutate: Review
    validate: Review

    @property
    def generates_names(self) -> bool:
        """Whether the API server chose the pod's name."""
        return "name" not in self.mutate["request"]

    @property
    def name(self) -> str:
        """The recorded name, or what it was generated from, without the hyphen at its end."""
        metadata = self.mutate["request"]["object"]["metadata"]
        return str(metadata.get("name") or metadata["generateName"]).rstrip("-")


class Creation(msgspec.Struct, frozen=True):
    """A request to create one pod; `uid` is the one the API server gives the pod."""

    recording: RecordedCreation
    namespace: str
    name: str
    uid: str

    @property
    def key(self) -> str:
        """The key of the pod inside its namespace, as the ledger writes it."""
        return f"pods/{self.name}"

    def mutating(self) -> Review:
        """Return the review to the mutating webhook: no uid yet, and no generated name."""
        review = self._review(self.recording.mutate)
        if not self.recording.generates_names:
            self._name(review)
        return review

    def validating(self, patch: Patch) -> Review:
        """Return the review to the validating webhook, with the patch of the mutating webhook
        applied."""
        review = self._review(self.recording.validate)
        self._name(review)
        review["request"]["object"]["metadata"]["uid"] = self.uid
        apply(review["request"]["object"], patch)
        return review

    def _review(self, recorded: Review) -> Review:
        review = deepcopy(recorded)
        request = review["request"]
        request["uid"] = _uid()
        request["namespace"] = request["object"]["metadata"]["namespace"] = self.namespace
        return review

    def _name(self, review: Review) -> None:
        request = review["request"]
        request["name"] = request["object"]["metadata"]["name"] = self.name


class CreationFactory:
    """Makes creations from recordings, in turn, each with a name of its own."""

    def __init__(self, recordings: Sequence[RecordedCreation]) -> None:
        """Take turns with these."""
        self._turns = itertools.cycle(recordings)
        self._numbers = itertools.count(1)

    def make(self, count: int, namespaces: Sequence[str]) -> list[Creation]:
        """Return so many requests for each of the namespaces, mixed."""
        return [
            self._creation(recording, namespace)
            for recording in itertools.islice(self._turns, count)
            for namespace in namespaces
        ]

    def again(self, creation: Creation) -> Creation:
        """Return the request as its client repeats it: a generated name is generated again."""
        if creation.recording.generates_names:
            return self._creation(creation.recording, creation.namespace)
        return msgspec.structs.replace(creation, uid=_uid())

    def _creation(self, recording: RecordedCreation, namespace: str) -> Creation:
        name = f"{recording.name}-{next(self._numbers):04d}"
        return Creation(recording, namespace, name, _uid())


def load() -> list[RecordedCreation]:
    """Return all recordings that come with the package, by case."""
    folder = resources.files(__package__) / _FOLDER
    files = (file for file in folder.iterdir() if file.name.endswith(".json"))
    decode = msgspec.json.Decoder(RecordedCreation).decode
    return sorted(
        (decode(file.read_bytes()) for file in files), key=lambda recording: recording.case
    )


def apply(document: dict[str, Any], patch: Patch) -> None:
    """Apply a JSON patch of `add` steps, the only ones the webhook makes, in place."""
    for step in patch:
        if step["op"] != "add":
            raise ValueError(f"the patch step {step['op']} at {step['path']} is not `add`")
        *way, last = map(_unescaped, step["path"].split("/")[1:])
        place: Any = document
        for part in way:
            place = place[int(part)] if isinstance(place, list) else place[part]
        place[last] = step["value"]


def _unescaped(part: str) -> str:
    """Return the name in one step of a JSON pointer, unescaped."""
    return part.replace("~1", "/").replace("~0", "~")


def _uid() -> str:
    return str(uuid.uuid4())
