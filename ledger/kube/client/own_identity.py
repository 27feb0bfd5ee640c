"""Own identity: the user name of this service at the API server."""

from typing import Final

import msgspec

from ledger.kube.api.cluster_errors import Malformed
from ledger.kube.client.api_client import ApiClient

REVIEW_SECONDS: Final = 5.0
"""Deadline of the request."""

_PATH: Final = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
_QUESTION: Final = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}


class _User(msgspec.Struct):
    username: str


class _Status(msgspec.Struct, rename="camel"):
    user_info: _User


class _Answer(msgspec.Struct):
    status: _Status


async def own_name(client: ApiClient) -> str:
    """Return the user name of a client; every user may read its own. Raises ClusterError."""
    body = await client.request(
        "POST", _PATH, body=msgspec.json.encode(_QUESTION), seconds=REVIEW_SECONDS
    )
    try:
        return msgspec.json.decode(body, type=_Answer).status.user_info.username
    except msgspec.MsgspecError as error:
        raise Malformed(
            f"{client.address}{_PATH} answered no SelfSubjectReview: {error}"
        ) from error
