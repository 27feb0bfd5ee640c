"""The demo's recordings are the recorded ones, and only names and uids vary."""

from copy import deepcopy
from typing import Any

import pytest
from support.builders.admission_reviews import patched, recorded

from gpuledger.demo import recordings
from gpuledger.demo.recordings import CreationFactory, RecordedCreation

RECORDINGS = recordings.load()
CASES = [recording.case for recording in RECORDINGS]
PATCH = [{"op": "add", "path": "/metadata/annotations", "value": {"gpuledger.io/stamp": "s"}}]


def first_creation(case: str, webhook: str) -> dict[str, Any]:
    """Return the first recorded creation of a pod, without managedFields."""
    for _, review in recorded(case, webhook):
        request = review["request"]
        if request["operation"] == "CREATE" and request["resource"]["resource"] == "pods":
            del request["object"]["metadata"]["managedFields"]
            return review
    raise AssertionError(f"{case} creates no pod")


@pytest.mark.parametrize("recording", RECORDINGS, ids=CASES)
def test_what_is_shipped_is_what_was_recorded(recording: RecordedCreation) -> None:
    assert recording.mutate == first_creation(recording.case, "mutate")
    assert recording.validate == first_creation(recording.case, "validate")


@pytest.mark.parametrize("recording", RECORDINGS, ids=CASES)
def test_a_request_varies_only_names_and_uids(recording: RecordedCreation) -> None:
    (creation,) = CreationFactory([recording]).make(1, ["research"])
    expected = patched_validate(recording)
    request = expected["request"]
    sent = creation.validating(PATCH)
    request["uid"] = sent["request"]["uid"]
    assert request["uid"] != recording.validate["request"]["uid"]
    request["name"] = request["object"]["metadata"]["name"] = creation.name
    request["namespace"] = request["object"]["metadata"]["namespace"] = "research"
    request["object"]["metadata"]["uid"] = creation.uid
    assert sent == expected


def patched_validate(recording: RecordedCreation) -> dict[str, Any]:
    review = deepcopy(recording.validate)
    review["request"]["object"] = patched(review["request"]["object"], PATCH)
    return review


def test_a_generated_name_is_unknown_until_the_validating_review() -> None:
    recording = next(recording for recording in RECORDINGS if recording.generates_names)
    (creation,) = CreationFactory([recording]).make(1, ["research"])
    request = creation.mutating()["request"]
    assert "name" not in request
    assert "name" not in request["object"]["metadata"]
    assert "uid" not in request["object"]["metadata"]


def test_repeated_request_keeps_a_given_name_and_generates_others() -> None:
    requests = CreationFactory(RECORDINGS)
    for creation in requests.make(len(RECORDINGS), ["research"]):
        again = requests.again(creation)
        assert again.uid != creation.uid
        assert (again.name == creation.name) is not creation.recording.generates_names


def test_names_are_unique() -> None:
    creations = CreationFactory(RECORDINGS).make(50, ["research", "serving"])
    assert (
        len({creation.name for creation in creations})
        == len({creation.uid for creation in creations})
        == 100
    )


def test_another_step_than_add_is_refused() -> None:
    with pytest.raises(ValueError, match="remove at /metadata/name"):
        recordings.apply({}, [{"op": "remove", "path": "/metadata/name"}])
