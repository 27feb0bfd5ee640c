"""Refusals of the live endpoints: what they are about, and when to try again."""

import json

from gpuledger.server.endpoints.refusals import invalid_field, invalid_parameter, refused_body
from ledger.runtime.http.json_endpoint import RequestRefused
from projections.api.query_parameters import InvalidParameter


def test_a_refused_body_has_one_header_for_trying_again() -> None:
    headers = ((b"connection", b"close"), (b"retry-after", b"1"))
    answer = refused_body(RequestRefused(503, "Overloaded", *headers, message="busy"))
    assert answer.headers.getlist("retry-after") == ["1"]
    assert answer.headers["connection"] == "close"
    assert json.loads(bytes(answer.body)) == {"error": {"message": "busy", "field": "body"}}


def test_a_refusal_names_what_is_known() -> None:
    bodies = [
        json.loads(bytes(invalid_field("m", *known).body)) for known in (("$.kind", 3), ("",))
    ]
    assert bodies == [
        {"error": {"message": "m", "field": "$.kind", "line": 3}},
        {"error": {"message": "m"}},
    ]
    empty = invalid_parameter(InvalidParameter("limit", "", message="m"))
    assert json.loads(bytes(empty.body))["error"] == {
        "message": "m",
        "parameter": "limit",
        "value": "",
    }
