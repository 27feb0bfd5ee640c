"""Access review: the user of a token and its rights, by TokenReview and SubjectAccessReview.

The reviewed resources (`usage`, `holders` and so on, group `gpuledger.io`) exist only in roles,
because RBAC does not check whether a resource is served.
"""

from typing import Final, TypeVar

import msgspec

from ledger.kube.api.cluster_errors import ClusterError
from ledger.kube.client.api_client import ApiClient

GROUP: Final = "gpuledger.io"

QUERY_GROUP: Final = "query.gpuledger.io"
"""Group of the aggregated API, with the same resources."""

QUERY_VERSION: Final = "v1"
QUERY_API_SERVICE: Final = f"{QUERY_VERSION}.{QUERY_GROUP}"

SERVICE_ACCOUNTS: Final = "system:serviceaccount:"
"""Prefix of the user names of service accounts."""

REVIEW_SECONDS: Final = 5.0
"""Deadline of one review by the API server."""

Answer = TypeVar("Answer")


class Subject(msgspec.Struct, frozen=True):
    """A user as the API server authenticated it."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, list[str]] = {}


def service_account(user: str) -> Subject | None:
    """Return the subject of a service account's user name, None for other names.

    Its groups are those that the API server gives every service account.
    """
    namespace, _, name = user.removeprefix(SERVICE_ACCOUNTS).partition(":")
    if not (user.startswith(SERVICE_ACCOUNTS) and namespace and name):
        return None
    every = "system:serviceaccounts"
    return Subject(user, groups=(every, f"{every}:{namespace}", "system:authenticated"))


class _TokenStatus(msgspec.Struct):
    authenticated: bool = False
    user: Subject = Subject()


class _TokenReview(msgspec.Struct):
    status: _TokenStatus


class _AccessStatus(msgspec.Struct):
    allowed: bool


class _AccessReview(msgspec.Struct):
    status: _AccessStatus


class KubernetesReviewer:
    """Reviews by the API server. Raises ConnectionError if it does not answer."""

    def __init__(self, client: ApiClient) -> None:
        """The user of `client` needs the role `system:auth-delegator`."""
        self._client = client

    async def review(self, token: str) -> Subject | None:
        """Return the user of the token, None if the API server does not accept it."""
        answer = await self._ask(
            "/apis/authentication.k8s.io/v1/tokenreviews",
            {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenReview",
                "spec": {"token": token},
            },
            _TokenReview,
        )
        accepted = answer.status.authenticated and answer.status.user.username
        return answer.status.user if accepted else None

    async def may(
        self, caller: Subject, verb: str, resource: str, namespace: str, *, group: str = GROUP
    ) -> bool:
        """Return whether the subject has the right; namespace "" means all namespaces.

        A resource that begins with `/` is a path outside all namespaces, one of Kubernetes'
        `nonResourceURLs`. The core group is "".
        """
        answer = await self._ask(
            "/apis/authorization.k8s.io/v1/subjectaccessreviews",
            {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SubjectAccessReview",
                "spec": {
                    "user": caller.username,
                    "uid": caller.uid,
                    "groups": caller.groups,
                    "extra": caller.extra,
                    **_asked(verb, resource, namespace, group),
                },
            },
            _AccessReview,
        )
        return answer.status.allowed

    async def _ask(self, path: str, question: object, kind: type[Answer]) -> Answer:
        try:
            body = await self._client.request(
                "POST", path, body=msgspec.json.encode(question), seconds=REVIEW_SECONDS
            )
            return msgspec.json.decode(body, type=kind)
        except (ClusterError, msgspec.MsgspecError) as error:
            raise ConnectionError(str(error)) from error


def _asked(verb: str, resource: str, namespace: str, group: str) -> dict[str, dict[str, str]]:
    if resource.startswith("/"):
        return {"nonResourceAttributes": {"path": resource, "verb": verb}}
    named = {"group": group, "resource": resource, "verb": verb, "namespace": namespace}
    return {"resourceAttributes": named}
