"""The charge of a pod for its claims, against the oracle that reads plain lists."""

from typing import Any, Final

from hypothesis import event, given
from hypothesis import strategies as st
from support.claims.claim_reviews import CLAIM_NAME, ClaimTeam, read
from support.fakes.owner_cluster import Manifest
from support.generators.resource_claims import SHARED_DRIVER
from support.oracles import device_expressions
from support.oracles import resource_claim_oracle as oracle
from support.oracles.resource_claim_oracle import DeviceSuppliers

from ledger.core.model.denials import Denial

GI: Final = 1024
NAMESPACE: Final = "team"
_CORES: Final = {"value": "100", "requestPolicy": {"default": "10", "validRange": {"min": "1"}}}


def _supply() -> DeviceSuppliers:
    cards = [
        {
            "name": f"gpu-{step}",
            "allowMultipleAllocations": True,
            "capacity": {
                "cores": _CORES,
                "memory": {
                    "value": "80Gi",
                    "requestPolicy": {
                        "default": f"{step}Gi",
                        "validRange": {"min": f"{step}Gi", "step": f"{step}Gi"},
                    },
                },
            },
        }
        for step in (1, 5)
    ]
    pool = {"name": "n1", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": SHARED_DRIVER, "pool": pool, "nodeName": "n1", "devices": cards}
    selectors = [{"cel": {"expression": f"device.driver == '{SHARED_DRIVER}'"}}]
    return DeviceSuppliers(
        [{"metadata": {"name": "n1", "uid": "u-n1"}, "spec": spec}],
        [
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "DeviceClass",
                "metadata": {"name": "gpu", "uid": "u-gpu"},
                "spec": {"selectors": selectors},
            }
        ],
        frozenset((SHARED_DRIVER,)),
        device_expressions.accepts,
    )


SUPPLY: Final = _supply()


def spec_of(gi: int, count: int) -> Manifest:
    """Return a spec of one request."""
    exactly = {
        "deviceClassName": "gpu",
        "allocationMode": "ExactCount",
        "count": count,
        "capacity": {"requests": {"memory": f"{gi}Gi"}},
    }
    return {"devices": {"requests": [{"name": "r0", "exactly": exactly}]}}


specs = st.builds(spec_of, st.integers(1, 20), st.integers(1, 2))


@st.composite
def given_devices(draw: st.DrawFn, spec: Manifest) -> Manifest:
    """Return the status of a claim of this spec, allocated."""
    form: Manifest = spec["devices"]["requests"][0]["exactly"]
    asked = int(form["capacity"]["requests"]["memory"].removesuffix("Gi"))
    results = []
    for _ in range(form["count"]):
        step = draw(st.sampled_from((1, 5)))
        results.append(
            {
                "request": "r0",
                "driver": SHARED_DRIVER,
                "pool": "n1",
                "device": f"gpu-{step}",
                "shareID": "s",
                "consumedCapacity": {"memory": f"{-(-asked // step) * step}Gi", "cores": "10"},
            }
        )
    return {"allocation": {"devices": {"results": results}}}


@st.composite
def stored_pods(draw: st.DrawFn) -> tuple[list[Manifest], list[Manifest], list[Manifest], set[str]]:
    """Return two pods of templates, the templates, the claims, and the uids of those apart."""
    templates: list[Manifest] = [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": f"t{number}", "namespace": NAMESPACE, "uid": f"u-t{number}"},
            "spec": {"spec": draw(specs)},
        }
        for number in range(2)
    ]
    pods: list[Manifest] = []
    claims: list[Manifest] = []
    apart: set[str] = set()
    for index in range(2):
        pod = _pod(f"p{index}", draw(st.lists(st.integers(0, 1), min_size=1, max_size=3)))
        pods.append(pod)
        for number, used in enumerate(pod["spec"]["resourceClaims"]):
            fate = draw(st.sampled_from(("none", "same", "swapped", "apart", "decoy")))
            if fate == "none":
                continue
            template = templates[int(used["resourceClaimTemplateName"][1:])]
            spec = template["spec"]["spec"] if fate == "same" else draw(specs)
            name = f"p{index}-{number}"
            uid = f"u-{name}"
            owner = pod["metadata"]["uid"] if fate != "decoy" else "u-another"
            claims.append(_claim(name, uid, owner, used["name"], spec))
            if draw(st.booleans()):
                claims[-1]["status"] = draw(given_devices(spec))
            if fate == "apart":
                apart.add(uid)
            pod["status"]["resourceClaimStatuses"].append(
                {"name": used["name"], "resourceClaimName": name}
            )
    return pods, templates, claims, apart


def _pod(name: str, templates: list[int]) -> Manifest:
    used = [
        {"name": f"c{number}", "resourceClaimTemplateName": f"t{template}"}
        for number, template in enumerate(templates)
    ]
    metadata = {"name": name, "namespace": NAMESPACE, "uid": f"u-{name}", "resourceVersion": "7"}
    spec: dict[str, Any] = {"containers": [{"name": "main"}], "resourceClaims": used}
    return {"metadata": metadata, "spec": spec, "status": {"resourceClaimStatuses": []}}


def _claim(name: str, uid: str, owner: str, use: str, spec: Manifest) -> Manifest:
    reference = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": owner, "controller": True}
    metadata = {
        "name": name,
        "namespace": NAMESPACE,
        "uid": uid,
        "annotations": {CLAIM_NAME: use},
        "ownerReferences": [reference],
    }
    return {"metadata": metadata, "spec": spec, "status": {}}


@given(stored_pods())
def test_a_pod_is_charged_for_the_claims_that_are_made_for_it(drawn) -> None:
    pods, templates, claims, apart = drawn
    team = ClaimTeam()
    team.list_classes(*SUPPLY.classes)
    team.list_slices(*SUPPLY.slices)
    team.list_templates(*templates)
    for claim in claims:
        team.store.note_claim(read(claim))
        if claim["metadata"]["uid"] in apart:
            key = f"resourceclaims.resource.k8s.io/{claim['metadata']['name']}"
            team.observe(key, claim["metadata"]["uid"], memory=GI)
    for pod in pods:
        expected = oracle.of_pod(pod, pods, claims, templates, SUPPLY, frozenset(apart))
        demand = team.demand(pod)
        assert not isinstance(demand, Denial)
        assert demand.amounts == +expected
    event(f"{len(claims)} claims, {len(apart)} apart")
