"""Which objects of each kind a real API server would send for review, by the kind's conditions.

Nothing listens where the webhooks lead, and they fail closed: an object that is selected is not
stored and the answer is 500, one that is not selected is stored as if nobody watched. An expression
that fails selects as well, so what must not be selected shows that it does not fail either.
"""

import uuid
from collections.abc import AsyncIterator, Iterator
from copy import deepcopy
from typing import Any, Final

import pytest
from support.kinds import CATALOG, cases_of

from tests.e2e.cluster import Answer, Cluster, Manifest
from tests.e2e.conftest import _connected
from tests.e2e.controlplane import ControlPlane
from tests.e2e.polling import eventually
from webhook.kinds.kind import Kind
from webhook.kinds.matching import conditions

pytestmark = pytest.mark.e2e

RESOURCES: Final = ("nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores")
CONFIGURATIONS: Final = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
BUILT_IN: Final = ("apps", "batch")
KINDS: Final = list(CATALOG)

LABELS: Final = {"app": "a"}
REQUIRED: Final[dict[str, Manifest]] = {
    "cronjobs.batch": {"schedule": "* * * * *"},
    "statefulsets.apps": {"serviceName": "a"},
}
"""What the API server asks of a spec besides what matters here."""


def named(kind: Kind) -> str:
    return kind.name


class Objects:
    """Objects of one kind in a namespace of their own."""

    def __init__(self, cluster: Cluster, kind: Kind, namespace: str) -> None:
        self.cluster = cluster
        self.kind = kind
        self.version = str(cases_of(kind)[0].object["apiVersion"])
        self.path = f"/apis/{self.version}/namespaces/{namespace}/{kind.resource}"

    def manifest(self, name: str = "a") -> Manifest:
        """Return an object that asks for cards in one of its templates."""
        found = deepcopy(cases_of(self.kind)[0].object)
        found["metadata"] = {"name": name, "labels": {"team": "a"}}
        found["spec"] = {**found["spec"], **REQUIRED.get(self.kind.name, {})}
        if self.kind.group in BUILT_IN:
            complete(self.kind, found["spec"])
        return found

    async def are_served(self) -> bool:
        """Tell whether the API server knows the kind; until it does, it does not answer in JSON."""
        try:
            return (await self.cluster.ask("GET", self.path)).status == 200
        except ValueError:
            return False

    async def create(self, manifest: Manifest) -> Answer:
        return await self.cluster.ask("POST", self.path, manifest)

    async def stored(self, manifest: Manifest) -> None:
        """Create an object that nobody is asked about."""
        answer = await self.create(manifest)
        assert answer.status == 201, answer.message


def complete(kind: Kind, spec: Manifest) -> None:
    """Add what the API server wants of a built-in kind."""
    holder = spec["jobTemplate"]["spec"] if kind.resource == "cronjobs" else spec
    holder["template"]["spec"]["containers"][0]["image"] = "i"
    if kind.group == "batch":
        holder["template"]["spec"]["restartPolicy"] = "Never"
    else:
        holder["template"]["metadata"] = {"labels": LABELS}
        spec["selector"] = {"matchLabels": LABELS}


def asking_for(resource: str, manifest: Any) -> Any:
    """Return an object in which another resource stands for the cards."""
    if isinstance(manifest, dict):
        kept = {key: one for key, one in manifest.items() if not key.startswith("nvidia.com/")}
        asks = {resource: 1} if len(kept) < len(manifest) else {}
        return {key: asking_for(resource, one) for key, one in kept.items()} | asks
    if isinstance(manifest, list):
        return [asking_for(resource, one) for one in manifest]
    return manifest


def configuration(kind: Kind) -> Manifest:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": kind.name},
        "webhooks": [
            {
                "name": f"{kind.resource}.kinds.gpuledger.io",
                "clientConfig": {"url": "https://127.0.0.1:9/"},
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Fail",
                "timeoutSeconds": 1,
                "matchConditions": conditions(kind, RESOURCES),
                "rules": [
                    {
                        "apiGroups": [kind.group],
                        "apiVersions": ["*"],
                        "resources": [kind.resource],
                        "operations": ["CREATE", "UPDATE"],
                    }
                ],
            }
        ],
    }


def definition(kind: Kind) -> Manifest:
    """Return a definition without a schema: the operators' own are not needed to be reviewed."""
    version = str(cases_of(kind)[0].object["apiVersion"]).partition("/")[2]
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": kind.name,
            "annotations": {"api-approved.kubernetes.io": "unapproved, experimental-only"},
        },
        "spec": {
            "group": kind.group,
            "scope": "Namespaced",
            "names": {
                "plural": kind.resource,
                "singular": kind.kind.lower(),
                "kind": kind.kind,
            },
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


@pytest.fixture(scope="module")
def plane(assets: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    running = ControlPlane(assets, tmp_path_factory.mktemp("kinds"))
    running.start()
    yield running
    running.stop()


@pytest.fixture
async def objects(plane: ControlPlane, request: pytest.FixtureRequest) -> AsyncIterator[Objects]:
    """Define the kind where that is needed, register its conditions and wait for both."""
    kind: Kind = request.param
    namespace = f"team-{uuid.uuid4().hex[:8]}"
    async with _connected(plane) as cluster:
        made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        await cluster.must("POST", "/api/v1/namespaces", made)
        if kind.group not in BUILT_IN:
            await cluster.ask("POST", DEFINITIONS, definition(kind))
        found = Objects(cluster, kind, namespace)
        await eventually(found.are_served, bool, within=30, what=f"{kind.name} is served")
        registered = await cluster.ask("POST", CONFIGURATIONS, configuration(kind))
        assert registered.status in (201, 409), registered.message
        await eventually(
            lambda: cluster.ask("POST", f"{found.path}?dryRun=All", found.manifest("canary")),
            lambda answer: answer.status == 500,
            within=30,
            what="the conditions are in effect",
        )
        yield found


each_kind = pytest.mark.parametrize("objects", KINDS, ids=named, indirect=True)


@each_kind
async def test_only_what_asks_for_cards_is_selected(objects: Objects) -> None:
    plain = asking_for("example.com/fpga", objects.manifest())
    await objects.stored(plain)
    selected = await objects.create(objects.manifest("b"))
    assert selected.status == 500
    assert f"{objects.kind.resource}.kinds.gpuledger.io" in selected.message


@each_kind
async def test_an_update_is_selected_when_it_changes_what_is_judged(objects: Objects) -> None:
    plain = asking_for("example.com/fpga", objects.manifest())
    await objects.stored(plain)
    path = f"{objects.path}/a"
    labelled = await objects.cluster.patch(path, {"metadata": {"labels": {"team": "b"}}})
    assert labelled.status == 200, "an object that asks for nothing concerns nobody"
    await objects.cluster.must("DELETE", f"{CONFIGURATIONS}/{objects.kind.name}")
    asking = objects.manifest("c")
    await eventually(
        lambda: objects.create(asking),
        lambda answer: answer.status in (201, 409),
        within=30,
        what="the conditions are out of effect",
    )
    await objects.cluster.must("POST", CONFIGURATIONS, configuration(objects.kind))
    path = f"{objects.path}/c"
    suspended = {"spec": {"gpuledgerTest": 1, "suspend": True, "minReadySeconds": 5}}
    await eventually(
        lambda: objects.cluster.patch(path, suspended),
        lambda answer: answer.status == 500,
        within=30,
        what="a change of the spec is selected",
    )
    relabelled = await objects.cluster.patch(path, {"metadata": {"labels": {"team": "b"}}})
    assert relabelled.status == 500
    annotated = await objects.cluster.patch(path, {"metadata": {"annotations": {"a": "b"}}})
    assert annotated.status == 200, annotated.message


custom = [kind for kind in KINDS if kind.group not in BUILT_IN]


@pytest.mark.parametrize("objects", custom, ids=named, indirect=True)
async def test_an_object_without_any_of_the_fields_is_not_selected(objects: Objects) -> None:
    bare = {**objects.manifest(), "spec": {}}
    await objects.stored(bare)
    del bare["spec"]
    bare["metadata"]["name"] = "b"
    await objects.stored(bare)
