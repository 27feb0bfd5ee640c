"""The Service of the webhooks selects by the role once no pod without it is behind it.

An upgrade reads the objects of the release, here from an API server of two objects.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from ledger.kube.client.pod_role import LABEL, REVIEWER
from tools.manifests.helm_chart import CHART, helm

CHART_FOLDER: Final = Path(__file__).parents[4] / CHART
ROLE: Final = {LABEL: REVIEWER}
LOOKED_UP: Final = {
    "v1": ("Service", "Secret", "ConfigMap", "Namespace"),
    "apps/v1": ("Deployment", "StatefulSet"),
    "rbac.authorization.k8s.io/v1": ("ClusterRoleBinding",),
    "apiextensions.k8s.io/v1": ("CustomResourceDefinition",),
}
"""The kinds that the chart looks up, by group and version."""

NOT_FOUND: Final = {"kind": "Status", "apiVersion": "v1", "code": 404, "reason": "NotFound"}


class _Answers(BaseHTTPRequestHandler):
    """Answers discovery, and reads of the objects of the server; all others are missing."""

    server: "ObjectServer"

    def do_GET(self) -> None:
        answer = _discovered(self.path.partition("?")[0]) or self.server.objects.get(self.path)
        status = 200 if answer else 404
        body = json.dumps(answer or NOT_FOUND).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


class ObjectServer(ThreadingHTTPServer):
    """An API server that has some objects, by their paths."""

    def __init__(self, objects: dict[str, Any]) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.objects = objects


def _discovered(path: str) -> dict[str, Any] | None:
    if path == "/version":
        return {"major": "1", "minor": "33", "gitVersion": "v1.33.0"}
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"]}
    if path == "/apis":
        groups = [_group(name) for name in LOOKED_UP if "/" in name]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
    group_version = path.removeprefix("/apis/").removeprefix("/api/")
    if group_version not in LOOKED_UP:
        return None
    resources = [
        {
            "name": f"{kind.lower()}s",
            "kind": kind,
            "namespaced": kind
            not in ("Namespace", "ClusterRoleBinding", "CustomResourceDefinition"),
            "verbs": ["get", "list"],
        }
        for kind in LOOKED_UP[group_version]
    ]
    return {"kind": "APIResourceList", "groupVersion": group_version, "resources": resources}


def _group(name: str) -> dict[str, Any]:
    version = {"groupVersion": name, "version": "v1"}
    return {"name": name.partition("/")[0], "versions": [version], "preferredVersion": version}


@contextmanager
def serving(objects: dict[str, Any]) -> Iterator[str]:
    """Return the address of an API server with these objects."""
    with ObjectServer(objects) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def release(selector: dict[str, str], template: dict[str, str], updated: int) -> dict[str, Any]:
    """Return Service and Deployment of a release with two pods, of which some are updated."""
    service = {"kind": "Service", "apiVersion": "v1", "spec": {"selector": {"a": "b"} | selector}}
    deployment = {
        "kind": "Deployment",
        "apiVersion": "apps/v1",
        "metadata": {"name": "gpuledger", "generation": 3},
        "spec": {"template": {"metadata": {"labels": {"a": "b"} | template}}},
        "status": {"observedGeneration": 3, "replicas": 2, "updatedReplicas": updated},
    }
    return {
        "/api/v1/namespaces/gpu/services/gpuledger": service,
        "/apis/apps/v1/namespaces/gpu/deployments/gpuledger": deployment,
    }


@pytest.mark.parametrize(
    ("objects", "selects"),
    [
        ({}, True),
        (release({}, {}, 2), False),
        (release({}, ROLE, 1), False),
        (release({}, ROLE, 2), True),
        (release(ROLE, ROLE, 1), True),
    ],
    ids=["a new release", "pods without role", "during the update", "after it", "selected before"],
)
def test_service_selects_the_role_once_all_pods_have_it(
    objects: dict[str, Any], selects: bool, tmp_path: Path
) -> None:
    with serving(objects) as address:
        access = tmp_path / "config"
        cluster = {"name": "c", "cluster": {"server": address}}
        context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
        config = {"clusters": [cluster], "contexts": [context], "current-context": "c"}
        access.write_text(yaml.safe_dump(config | {"users": [{"name": "u", "user": {}}]}))
        text = helm(
            "template",
            "gpuledger",
            CHART_FOLDER,
            "--namespace=gpu",
            "--set=cluster=east",
            "--dry-run=server",
            "--show-only=templates/service/service.yaml",
            f"--kubeconfig={access}",
        )
    reviews, readers = [each for each in yaml.safe_load_all(text) if each]
    assert (LABEL in reviews["spec"]["selector"]) is selects
    assert LABEL not in readers["spec"]["selector"]
