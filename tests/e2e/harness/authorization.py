"""Rights of users, which the API server applies a moment after their objects were written.

Every function returns only when the API server applies the rights, so that no test asks too early.
"""

from collections.abc import Iterable
from typing import Final

from tests.e2e.harness.cluster import Cluster, Manifest
from tests.e2e.harness.polling import eventually

APPLIED_SECONDS: Final = 30.0
EVERYTHING: Final[list[Manifest]] = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]

_GROUP: Final = "rbac.authorization.k8s.io"
_ROLES: Final = f"/apis/{_GROUP}/v1"
_REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


async def grant(cluster: Cluster, user: str, rules: list[Manifest], role_name: str = "") -> None:
    """Grant a user the rights of these rules, everywhere; once for each user and name."""
    name = f"e2e-{role_name or user}"
    role = {"metadata": {"name": name}, "rules": rules}
    await cluster.must("POST", f"{_ROLES}/clusterroles", role)
    bound = _binding(name, name, [user])
    await cluster.must("POST", f"{_ROLES}/clusterrolebindings", bound)
    await are_applied(cluster, user, rules)


async def grant_all_in(cluster: Cluster, namespace: str, *users: str) -> None:
    """Grant users every right in a namespace."""
    bound = _binding("everything", "cluster-admin", users)
    await cluster.must("POST", f"{_ROLES}/namespaces/{namespace}/rolebindings", bound)
    for user in users:
        await are_applied(cluster, user, EVERYTHING, namespace)


async def are_applied(
    cluster: Cluster, user: str, rules: list[Manifest], namespace: str = ""
) -> None:
    """Return when the API server allows the user the first resource and verb of each rule."""
    asked = [_attributes(rule, namespace) for rule in rules if "resources" in rule]

    async def refused() -> list[Manifest]:
        return [each for each in asked if not await _is_allowed(cluster, user, each)]

    await eventually(
        refused,
        lambda left: not left,
        within=APPLIED_SECONDS,
        what=f"the API server allows {user} what it was granted",
    )


def _binding(name: str, role: str, users: Iterable[str]) -> Manifest:
    return {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": _GROUP, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": _GROUP, "kind": "User", "name": user} for user in users],
    }


def _attributes(rule: Manifest, namespace: str) -> Manifest:
    resource, _, subresource = rule["resources"][0].partition("/")
    return {
        "group": rule["apiGroups"][0],
        "resource": resource,
        "subresource": subresource,
        "verb": rule["verbs"][0],
        "name": rule.get("resourceNames", [""])[0],
        "namespace": namespace,
    }


async def _is_allowed(cluster: Cluster, user: str, attributes: Manifest) -> bool:
    review = {"spec": {"user": user, "resourceAttributes": attributes}}
    reviewed = await cluster.must("POST", _REVIEWS, review)
    return bool(reviewed["status"]["allowed"])
