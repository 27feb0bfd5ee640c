"""The error for each answer of the API server."""

import json

import pytest
from support.fakes.canned_apiserver import failure

from ledger.kube.api.cluster_errors import (
    AlreadyExists,
    ClusterUnavailable,
    Forbidden,
    Gone,
    NotFound,
    NotServed,
    Rejected,
    VersionConflict,
)
from ledger.kube.api.http_status_errors import error_of


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (failure(401, "Unauthorized"), Forbidden),
        (failure(403, "Forbidden"), Forbidden),
        (failure(404, "NotFound", name="web"), NotFound),
        (failure(404, "NotFound"), NotServed),
        (failure(409, "VersionConflict"), VersionConflict),
        (failure(409, "AlreadyExists"), AlreadyExists),
        (failure(410, "Expired"), Gone),
        (failure(422, "Invalid"), Rejected),
        (failure(429, "TooManyRequests"), ClusterUnavailable),
        (failure(500, "InternalError"), ClusterUnavailable),
    ],
)
def test_each_answer_has_one_error(answer, kind):
    status, body = answer
    error = error_of("GET /x", status, "", json.dumps(body).encode())
    assert type(error) is kind
    assert str(error) == f"GET /x answered {status}: no"


@pytest.mark.parametrize("body", [b"404 page not found", b"", b"\xff", b"[]"])
def test_a_404_that_no_object_is_named_in_is_about_the_api(body):
    error = error_of("GET /x", 404, "Not Found", body)
    assert type(error) is NotServed
    assert "Not Found" in str(error)
