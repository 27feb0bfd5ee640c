"""Each request is answered by a review or by a 4xx that names the error."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.builders.admission_reviews import (
    FIXTURES,
    GPU,
    CoreLedger,
    WebhookService,
    pod,
    recorded,
    review,
    serving,
)

from webhook.api.admission_review import warning
from webhook.app import endpoint
from webhook.context.admission_settings import AdmissionSettings

JSON = {"content-type": "application/json"}
PATHS = ["/admission/validate", "/admission/mutate"]
SCOPE = {"type": "http", "method": "POST", "headers": [(b"content-type", b"application/json")]}
CASES = sorted(path.stem for path in FIXTURES.glob("*.json"))


@pytest.fixture
async def service() -> AsyncIterator[WebhookService]:
    """Both webhooks on an unlimited ledger."""
    async with serving(CoreLedger(), policy=AdmissionSettings(body_max=100_000)) as webhook_service:
        yield webhook_service


@pytest.mark.parametrize("case", CASES)
async def test_every_recorded_review_is_answered(case: str, service: WebhookService) -> None:
    for webhook, request in recorded(case):
        response = await service.post(request, webhook)
        refused = not response["allowed"]
        assert refused == (webhook == "validate" and case == "pod-create-gpumem-16Gi")


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "HEAD", "OPTIONS"])
async def test_only_post_is_supported(service: WebhookService, path: str, method: str) -> None:
    answer = await service.client.request(method, path)
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("kind", ["text/plain", "", "application/xml; a=b"])
async def test_only_json_is_read(service: WebhookService, path: str, kind: str) -> None:
    answer = await service.client.post(path, content=b"{}", headers={"content-type": kind})
    assert answer.status_code == 415
    assert "send application/json" in answer.json()["message"]


async def test_charset_after_the_content_type_is_accepted(service: WebhookService) -> None:
    answer = await service.client.post(
        PATHS[0],
        content=json.dumps(review(pod())),
        headers={"content-type": "Application/JSON; charset=utf-8"},
    )
    assert answer.status_code == 200


async def test_a_body_over_the_bound_is_not_read(service: WebhookService) -> None:
    answer = await service.client.post(PATHS[0], content=b" " * 100_001, headers=JSON)
    assert answer.status_code == 413
    assert answer.json()["message"] == "the request is larger than 100000 bytes"


async def test_a_body_without_a_length_is_read_no_further_than_the_bound() -> None:
    async with serving(CoreLedger()) as service:
        application = endpoint(service.validating, AdmissionSettings(body_max=2500))
    read: list[int] = []
    sent: list[Any] = []

    async def receive() -> Any:
        read.append(1000)
        return {"type": "http.request", "body": b" " * 1000, "more_body": len(read) < 100}

    async def send(message: Any) -> None:
        sent.append(message)

    await application(SCOPE, receive, send)
    assert sent[0]["status"] == 413
    assert sum(read) == 3000


async def test_a_body_in_pieces_is_read_whole(service: WebhookService) -> None:
    text = json.dumps(review(pod({GPU: "0"}))).encode()

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(text), 7):
            yield text[start : start + 7]

    answer = await service.client.post(PATHS[0], content=pieces(), headers=JSON)
    assert answer.json()["response"]["allowed"]


def without(field: str) -> dict[str, Any]:
    """Return a review that lacks a field of its request."""
    request = review(pod())
    del request["request"][field]
    return request


@pytest.mark.parametrize(
    ("body", "field", "said"),
    [
        (b"", "$", "truncated"),
        (b"{", "$", "truncated"),
        (b"[]", "$", "Expected `object`, got `array`"),
        (b"\xff", "$", "malformed"),
        (b'{"request":{"a":' + b"[" * 50_000, "$", "nested too deeply"),
        (b"{}", "$.apiVersion", "is missing"),
        (json.dumps(without("uid")), "$.request.uid", "is missing"),
        (json.dumps(without("operation")), "$.request.operation", "is missing"),
        (json.dumps(without("resource")), "$.request.resource", "is missing"),
        (json.dumps(without("object")), "$.request.object", "is missing"),
        (json.dumps(review(None)), "$.request.object", "is missing"),
        (json.dumps(review(pod(), uid="")), "$.request.uid", "is empty"),
        (json.dumps(review(pod(), uid=5)), "$.request.uid", "Expected `str`"),
        (json.dumps(review(pod(), name="a/b")), "$.request.name", "not a Kubernetes name"),
        (json.dumps(review(pod(), namespace="n" * 254)), "$.request.namespace", "not a Kubernetes"),
        (json.dumps({**review(pod()), "kind": "Review"}), "$.kind", "is not AdmissionReview"),
        (
            json.dumps({**review(pod()), "apiVersion": "admission.k8s.io/v1beta1"}),
            "$.apiVersion",
            "send admission.k8s.io/v1",
        ),
        (
            json.dumps(review({"spec": {"containers": [{"resources": {"limits": 5}}]}})),
            "$.request.object.spec.containers[0].resources.limits",
            "Expected `object | null`, got `int`",
        ),
        (
            json.dumps(review({"spec": {"containers": [{"resources": {"limits": {"a": 0.5}}}]}})),
            "$.request.object.spec.containers[0].resources.limits[...]",
            "got `float`",
        ),
        (
            json.dumps(review(pod()))
            .replace('"team"', '"\udcff"')
            .encode("utf-8", "surrogateescape"),
            "$",
            "codec",
        ),
        (
            json.dumps(review(pod({"\udcff": "1"}), name="p"), ensure_ascii=False).encode(
                "utf-8", "surrogateescape"
            ),
            "$.request.object",
            "codec",
        ),
    ],
)
async def test_a_malformed_review_is_a_400_that_names_the_field(
    service: WebhookService, body: bytes | str, field: str, said: str
) -> None:
    answer = await service.client.post(PATHS[0], content=body, headers=JSON)
    assert answer.status_code == 400
    problem = answer.json()
    assert problem["error"] == "BadReview"
    assert problem["field"] == field
    assert said in problem["message"]


async def test_an_update_without_its_old_object_names_the_field(service: WebhookService) -> None:
    answer = await service.client.post(PATHS[0], json=review(pod(), operation="UPDATE"))
    assert (answer.status_code, answer.json()["field"]) == (400, "$.request.oldObject")


# Clients that do not do their part


async def test_a_body_that_never_ends_is_given_up_at_the_deadline(service: WebhookService) -> None:
    application = endpoint(service.validating, AdmissionSettings(deadline=0.05))
    sent: list[Any] = []

    async def receive() -> Any:
        if sent:
            await asyncio.Event().wait()
        sent.append("first")
        return {"type": "http.request", "body": b"{", "more_body": True}

    async def send(message: Any) -> None:
        sent.append(message)

    async with asyncio.timeout(5):
        await application(SCOPE, receive, send)
    assert sent[1]["status"] == 408


async def test_a_client_that_left_gets_no_answer_and_is_not_charged(
    service: WebhookService,
) -> None:
    application = endpoint(service.validating, AdmissionSettings())
    sent: list[Any] = []
    text = json.dumps(review(pod({GPU: "1"}))).encode()
    messages = [
        {"type": "http.request", "body": text, "more_body": True},
        {"type": "http.disconnect"},
    ]

    async def receive() -> Any:
        return messages.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    await application(SCOPE, receive, send)
    assert sent == []
    assert isinstance(service.ledger, CoreLedger)
    assert service.ledger.submitted == []


# Warnings that clients show


def test_a_long_warning_is_cut_to_what_the_api_server_passes_on() -> None:
    assert warning("x" * 256) == "x" * 256
    assert warning("x" * 257) == "x" * 255 + "\u2026"
