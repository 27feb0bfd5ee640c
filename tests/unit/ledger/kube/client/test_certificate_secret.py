"""Requests of the certificate Secret and their preconditions."""

import base64

import pytest
from support.fakes.canned_apiserver import CannedApiServer, failure

from ledger.kube.api.cluster_errors import Forbidden, Malformed
from ledger.kube.client.api_client import ApiClient
from ledger.kube.client.certificate_secret import CertificateSecret, StoredSecret

COLLECTION = "/api/v1/namespaces/own/secrets"
PATH = f"{COLLECTION}/tls"
MANIFEST = {
    "metadata": {"name": "tls", "resourceVersion": "7", "labels": {"a": "b"}},
    "data": {"ca.crt": base64.b64encode(b"CA").decode(), "other": ""},
}


@pytest.fixture
def secret(client: ApiClient) -> CertificateSecret:
    return CertificateSecret(client, namespace="own", name="tls")


async def test_a_secret_is_read_decoded(
    answers: CannedApiServer, secret: CertificateSecret
) -> None:
    answers.by_path[PATH] = MANIFEST
    stored = await secret.read()
    assert stored is not None
    assert stored.data == {"ca.crt": b"CA", "other": b""}


async def test_a_missing_secret_differs_from_one_without_data(
    answers: CannedApiServer, secret: CertificateSecret
) -> None:
    answers.by_path[PATH] = failure(404, "NotFound", name="tls")
    assert await secret.read() is None
    answers.by_path[PATH] = {"metadata": {"name": "tls"}}
    assert await secret.read() == StoredSecret({}, {"metadata": {"name": "tls"}})


@pytest.mark.parametrize("data", [{"ca.crt": "not base64!"}, {"ca.crt": 1}, []], ids=str)
async def test_another_answer_than_a_secret_is_malformed(
    answers: CannedApiServer, secret: CertificateSecret, data: object
) -> None:
    answers.by_path[PATH] = {"metadata": {"name": "tls"}, "data": data or [1]}
    with pytest.raises(Malformed, match="Secret own/tls"):
        await secret.read()


async def test_of_two_creations_the_second_is_refused(
    answers: CannedApiServer, secret: CertificateSecret
) -> None:
    answers.by_path[COLLECTION] = {}
    assert await secret.create({"ca.crt": b"CA"})
    assert answers.asked[-1].body["data"] == {"ca.crt": base64.b64encode(b"CA").decode()}
    answers.by_path[COLLECTION] = failure(409, "AlreadyExists", name="tls")
    assert not await secret.create({"ca.crt": b"CA"})


async def test_an_update_keeps_the_version_and_what_it_does_not_replace(
    answers: CannedApiServer, secret: CertificateSecret
) -> None:
    answers.by_path[PATH] = MANIFEST
    stored = await secret.read()
    assert stored is not None
    assert await secret.update(stored, {"tls.crt": b"new", "other": b""})
    asked = answers.asked[-1]
    assert asked.method == "PUT"
    assert asked.body["metadata"] == MANIFEST["metadata"]
    assert {key: base64.b64decode(text) for key, text in asked.body["data"].items()} == {
        "ca.crt": b"CA",
        "tls.crt": b"new",
    }


@pytest.mark.parametrize("answer", [failure(409, "Conflict"), failure(404, "NotFound", name="tls")])
async def test_an_update_of_a_changed_secret_raises_nothing(
    answers: CannedApiServer, secret: CertificateSecret, answer: object
) -> None:
    answers.by_path[PATH] = answer
    assert not await secret.update(StoredSecret({}, {"metadata": {}}), {"tls.crt": b"new"})


async def test_a_missing_right_is_an_error(
    answers: CannedApiServer, secret: CertificateSecret
) -> None:
    answers.by_path[PATH] = answers.by_path[COLLECTION] = failure(403, "Forbidden")
    with pytest.raises(Forbidden):
        await secret.read()
    with pytest.raises(Forbidden):
        await secret.create({})
