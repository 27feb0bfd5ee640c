"""Which objects of each kind a real API server would send for review, by the kind's conditions.

Nothing listens where the webhooks lead, and they fail closed: an object that is selected is not
stored and the answer is 500, one that is not selected is stored without a review. An expression
that fails selects as well, so what must not be selected shows that it does not fail either.
"""

import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from copy import deepcopy
from typing import Any, Final

import msgspec
import pytest
from support.builders.kind_objects import CATALOG, cases_of, kind_named

from tests.e2e.conftest import _connected
from tests.e2e.harness.cluster import Answer, Cluster, Manifest
from tests.e2e.harness.controlplane import ControlPlane
from tests.e2e.harness.polling import eventually
from webhook.configurations.kind_conditions import conditions
from webhook.kinds.expressions import KindExpression
from webhook.kinds.kind_schema import WorkloadKind

pytestmark = pytest.mark.e2e

RESOURCES: Final = ("nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores")
CONFIGURATIONS: Final = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
BUILT_IN: Final = ("apps", "batch")
KINDS: Final = list(CATALOG)

RELABEL: Final = {"metadata": {"labels": {"team": "b"}}}
CHANGES: Final = {"minReadySeconds": 5, "suspend": True}
"""Of a spec: each kind has one of these fields, or takes any."""

LABELS: Final = {"app": "a"}
REQUIRED: Final[dict[str, Manifest]] = {
    "cronjobs.batch": {"schedule": "* * * * *"},
    "statefulsets.apps": {"serviceName": "a"},
}
"""Fields that the API server requires of a spec, irrelevant here."""


def named(kind: WorkloadKind) -> str:
    return kind.name


class Objects:
    """Objects of one kind in a namespace of their own."""

    def __init__(self, cluster: Cluster, kind: WorkloadKind, namespace: str) -> None:
        self.cluster = cluster
        self.kind = kind
        self.version = str(cases_of(kind)[0].object["apiVersion"])
        self.path = f"/apis/{self.version}/namespaces/{namespace}/{kind.resource}"

    def manifest(self, name: str = "a") -> Manifest:
        """Return an object that asks for cards in one of its templates."""
        body = deepcopy(cases_of(self.kind)[0].object)
        body["metadata"] = {"name": name, "labels": {"team": "a"}}
        body["spec"] = {**body["spec"], **REQUIRED.get(self.kind.name, {})}
        if self.kind.group in BUILT_IN:
            complete(self.kind, body["spec"])
        return body

    async def are_served(self) -> bool:
        """Return whether the API server serves the kind; until then its answer is not JSON."""
        try:
            return (await self.cluster.ask("GET", self.path)).status == 200
        except ValueError:
            return False

    async def watch(self) -> None:
        """Register the conditions and return when they are in effect."""
        await self.cluster.must("POST", CONFIGURATIONS, configuration(self.kind))
        await self._tried(lambda status: status == 500, "the conditions are in effect")

    async def watch_no_more(self) -> None:
        """Remove the conditions and return when they are out of effect."""
        await self.cluster.must("DELETE", f"{CONFIGURATIONS}/{self.kind.name}")
        await self._tried(lambda status: status == 201, "the conditions are out of effect")

    async def _tried(self, wanted: Callable[[int], bool], what: str) -> None:
        path = f"{self.path}?dryRun=All"
        await eventually(
            lambda: self.cluster.ask("POST", path, self.manifest("canary")),
            lambda answer: wanted(answer.status),
            within=30,
            what=what,
        )

    async def create(self, manifest: Manifest) -> Answer:
        return await self.cluster.ask("POST", self.path, manifest)

    async def stored(self, manifest: Manifest) -> None:
        """Create an object without a review."""
        answer = await self.create(manifest)
        assert answer.status == 201, answer.message


def complete(kind: WorkloadKind, spec: Manifest) -> None:
    """Add what the API server wants of a built-in kind."""
    holder = spec["jobTemplate"]["spec"] if kind.resource == "cronjobs" else spec
    holder["template"]["spec"]["containers"][0]["image"] = "i"
    if kind.group == "batch":
        holder["template"]["spec"]["restartPolicy"] = "Never"
    else:
        holder["template"]["metadata"] = {"labels": LABELS}
        spec["selector"] = {"matchLabels": LABELS}


def asking_for(resource: str, manifest: Any) -> Any:
    """Return an object in which another resource replaces the cards."""
    if isinstance(manifest, dict):
        kept = {key: value for key, value in manifest.items() if not key.startswith("nvidia.com/")}
        asks = {resource: 1} if len(kept) < len(manifest) else {}
        return {key: asking_for(resource, value) for key, value in kept.items()} | asks
    if isinstance(manifest, list):
        return [asking_for(resource, element) for element in manifest]
    return manifest


def configuration(kind: WorkloadKind) -> Manifest:
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


def definition(kind: WorkloadKind) -> Manifest:
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
    kind: WorkloadKind = request.param
    namespace = f"team-{uuid.uuid4().hex[:8]}"
    async with _connected(plane) as cluster:
        made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        await cluster.must("POST", "/api/v1/namespaces", made)
        if kind.group not in BUILT_IN:
            await cluster.ask("POST", DEFINITIONS, definition(kind))
        instances = Objects(cluster, kind, namespace)
        await eventually(instances.are_served, bool, within=30, what=f"{kind.name} is served")
        await instances.watch()
        yield instances
        await instances.watch_no_more()


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
    labelled = await objects.cluster.patch(f"{objects.path}/a", RELABEL)
    assert labelled.status == 200, "an object that asks for nothing concerns nobody"
    await objects.watch_no_more()
    await objects.stored(objects.manifest("c"))
    await objects.watch()
    path = f"{objects.path}/c"
    changed = await objects.cluster.patch(path, {"spec": CHANGES})
    assert changed.status == 500, changed.body
    relabelled = await objects.cluster.patch(path, RELABEL)
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


CARDS: Final = {"nvidia.com/gpu": 1}
WAYS: Final = {
    "limits": {"containers": [{"resources": {"limits": CARDS}}]},
    "requests": {"containers": [{"resources": {"requests": CARDS}}]},
    "an init container": {"containers": [{}], "initContainers": [{"resources": {"limits": CARDS}}]},
    "the second container": {"containers": [{"name": "a"}, {"resources": {"limits": CARDS}}]},
    "the whole pod": {"containers": [{}], "resources": {"limits": CARDS}},
    "requests of the whole pod": {"containers": [{}], "resources": {"requests": CARDS}},
    "overhead": {"containers": [{}], "overhead": CARDS},
}

one_kind = pytest.mark.parametrize(
    "objects", [kind_named("rollouts.argoproj.io")], ids=named, indirect=True
)


@one_kind
async def test_every_way_to_ask_is_selected(objects: Objects) -> None:
    for way, spec in WAYS.items():
        asking = {**objects.manifest(), "spec": {"template": {"spec": spec}}}
        answer = await objects.create(asking)
        assert answer.status == 500, way


COUNTED: Final = msgspec.structs.replace(
    kind_named("rollouts.argoproj.io"),
    suspended=KindExpression('default(metadata.annotations["paused"], "") == "true"'),
)
"""A kind that counts its pods by an annotation."""


@pytest.mark.parametrize("objects", [COUNTED], ids=named, indirect=True)
async def test_annotations_by_which_a_kind_counts_are_selected(objects: Objects) -> None:
    await objects.watch_no_more()
    await objects.stored(objects.manifest("c"))
    await objects.watch()
    annotated = {"metadata": {"annotations": {"paused": "true"}}}
    assert (await objects.cluster.patch(f"{objects.path}/c", annotated)).status == 500
    finalized: Manifest = {"metadata": {"finalizers": []}}
    assert (await objects.cluster.patch(f"{objects.path}/c", finalized)).status == 200


@one_kind
async def test_an_update_that_gives_cards_back_or_takes_them_is_selected(objects: Objects) -> None:
    plain = asking_for("example.com/fpga", objects.manifest())
    await objects.stored(plain)
    taken = {"spec": {"template": {"spec": WAYS["limits"]}}}
    assert (await objects.cluster.patch(f"{objects.path}/a", taken)).status == 500
    await objects.watch_no_more()
    assert (await objects.cluster.patch(f"{objects.path}/a", taken)).status == 200
    await objects.watch()
    given: Manifest = {"spec": {"template": {"spec": {"containers": [{}]}}}}
    assert (await objects.cluster.patch(f"{objects.path}/a", given)).status == 500
