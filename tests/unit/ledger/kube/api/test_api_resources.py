"""Names of resources in paths and keys."""

import pytest

from ledger.kube.api.api_resources import NAMESPACES, PODS, Resource

DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")


def test_a_name_holds_in_every_version():
    assert DEPLOYMENTS.name == "deployments.apps"
    assert Resource("apps", "v2", "deployments", "Deployment").name == DEPLOYMENTS.name
    assert PODS.name == "pods"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (PODS.collection(), "/api/v1/pods"),
        (PODS.collection("red"), "/api/v1/namespaces/red/pods"),
        (NAMESPACES.object("", "red"), "/api/v1/namespaces/red"),
        (DEPLOYMENTS.collection(), "/apis/apps/v1/deployments"),
        (DEPLOYMENTS.object("red", "web"), "/apis/apps/v1/namespaces/red/deployments/web"),
    ],
)
def test_paths_are_those_of_the_kubernetes_api(path, expected):
    assert path == expected


def test_a_name_cannot_leave_its_path():
    assert DEPLOYMENTS.object("red", "../../x?y").endswith("/deployments/..%2F..%2Fx%3Fy")
