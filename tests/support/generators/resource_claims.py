"""Generated slices, classes and specs of claims, as the API server would store them."""

from typing import Any, Final

from hypothesis import strategies as st
from support.oracles import resource_claim_oracle
from support.oracles.device_expressions import accepts
from support.oracles.resource_claim_oracle import DeviceSuppliers

Manifest = dict[str, Any]

SHARED_DRIVER: Final = "hami-core-gpu.project-hami.io"
WHOLE_DRIVER: Final = "gpu.nvidia.com"
COUNT_MAX: Final = 2**63 - 1
PRODUCTS: Final = ("NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-40GB", "NVIDIA L40S")
TYPES: Final = ("h100", "a100")

EXACT: Final = (
    *(
        f"device.attributes['{driver}'].productName == '{product}'"
        for driver in (SHARED_DRIVER, WHOLE_DRIVER)
        for product in PRODUCTS
    ),
    "device.allowMultipleAllocations == true",
    "device.allowMultipleAllocations != true",
)
"""Expressions that are read without an evaluator."""

INEXACT: Final = tuple(
    f"device.attributes['{driver}'].productName.startsWith('NVIDIA {letter}')"
    for driver in (SHARED_DRIVER, WHOLE_DRIVER)
    for letter in ("H", "A")
)


@st.composite
def memory_capacities(draw: st.DrawFn) -> Manifest:
    """Return a capacity of memory with any of the policies."""
    whole = draw(st.integers(2, 96))
    value = f"{whole}Gi"
    policy = draw(st.sampled_from(("none", "default", "values", "range", "steps", "most")))
    if policy == "none":
        return {"value": value}
    default = draw(st.sampled_from(("1Gi", value)))
    made: Manifest = {"default": default}
    if policy == "values":
        middle = draw(st.integers(2, whole))
        made["validValues"] = (
            ["1Gi", f"{middle}Gi", value] if 1 < middle < whole else ["1Gi", value]
        )
    elif policy == "range":
        made["validRange"] = {"min": draw(st.sampled_from(("1Gi", "1", "512Mi")))}
    elif policy == "steps":
        made["validRange"] = {"min": "1Gi", "step": draw(st.sampled_from(("1Gi", "3Gi", "100M")))}
        made["default"] = "1Gi"
    elif policy == "most":
        made["validRange"] = {
            "min": "1Gi",
            "max": f"{draw(st.integers(1, whole))}Gi",
            "step": "1Gi",
        }
        made["default"] = "1Gi"
    return {"value": value, "requestPolicy": made}


@st.composite
def devices(draw: st.DrawFn, name: str, driver: str) -> Manifest:
    """Return a device; those of the driver of whole cards are not shared."""
    shared = driver == SHARED_DRIVER and draw(st.integers(0, 3)) > 0
    policy = {"default": "10", "validRange": {"min": "1", "step": "1"}}
    cores = {"value": "100"} | ({"requestPolicy": policy} if draw(st.booleans()) else {})
    prefix = draw(st.sampled_from(("", f"{driver}/")))
    memory = draw(memory_capacities()) if shared else {"value": f"{draw(st.integers(8, 96))}Gi"}
    device: Manifest = {
        "name": name,
        "attributes": {"productName": {"string": draw(st.sampled_from(PRODUCTS))}},
        "capacity": {f"{prefix}memory": memory, f"{prefix}cores": cores},
    }
    return device | ({"allowMultipleAllocations": True} if shared else {})


@st.composite
def slices(draw: st.DrawFn) -> list[Manifest]:
    """Return the slices of two nodes: of older generations too, and of pools that lack one."""
    made: list[Manifest] = []
    for node in ("n1", "n2"):
        for driver in (SHARED_DRIVER, WHOLE_DRIVER):
            for generation in range(1, draw(st.integers(1, 2)) + 1):
                parts = draw(st.integers(1, 2))
                missing = draw(st.integers(0, 5)) == 0
                for part in range(parts):
                    held = draw(st.integers(1, 3))
                    pool = {
                        "name": node,
                        "generation": generation,
                        "resourceSliceCount": parts + missing,
                    }
                    spec = {
                        "driver": driver,
                        "nodeName": node,
                        "pool": pool,
                        "devices": [
                            draw(devices(f"d{part}-{index}", driver)) for index in range(held)
                        ],
                    }
                    metadata = {"name": f"{node}-{driver}-{generation}-{part}", "uid": "u"}
                    made.append({"metadata": metadata, "spec": spec})
    return made


@st.composite
def classes(draw: st.DrawFn, further: tuple[str, ...] = EXACT) -> list[Manifest]:
    """Return classes of one driver each, whose selectors have further conditions."""
    made = []
    for driver, name in ((SHARED_DRIVER, "shared"), (WHOLE_DRIVER, "whole")):
        expression = f"device.driver == '{driver}'"
        if draw(st.booleans()):
            expression += f" && {draw(st.sampled_from(further))}"
        metadata = {"name": name, "uid": "u"}
        made.append(
            {"metadata": metadata, "spec": {"selectors": [{"cel": {"expression": expression}}]}}
        )
    return made


@st.composite
def suppliers(draw: st.DrawFn, further: tuple[str, ...] = EXACT) -> DeviceSuppliers:
    """Return slices and classes."""
    drivers = frozenset((SHARED_DRIVER, WHOLE_DRIVER))
    return DeviceSuppliers(draw(slices()), draw(classes(further)), drivers, accepts, TYPES)


@st.composite
def forms(
    draw: st.DrawFn, *, is_alternative: bool = False, further: tuple[str, ...] = EXACT
) -> Manifest:
    """Return the exact form of a request, or one alternative."""
    name = draw(st.sampled_from(("shared", "whole")))
    driver = SHARED_DRIVER if name == "shared" else WHOLE_DRIVER
    form: Manifest = {"deviceClassName": name, "allocationMode": "ExactCount"}
    if draw(st.integers(0, 4)) == 0:
        form["allocationMode"] = "All"
    else:
        form["count"] = draw(st.integers(1, 3))
        if draw(st.integers(0, 15)) == 0:
            form["count"] = draw(st.sampled_from((31, 32, 33, COUNT_MAX)))
    if not is_alternative and draw(st.integers(0, 9)) == 0:
        form["adminAccess"] = True
    prefix = draw(st.sampled_from(("", f"{driver}/")))
    sizes = ("1Gi", "7500Mi", "1500M", "0.5Gi", "20Gi", "1", "90Gi", "123456789")
    asked = {}
    if draw(st.booleans()):
        asked[f"{prefix}memory"] = draw(st.sampled_from(sizes))
    if draw(st.booleans()):
        asked[f"{prefix}cores"] = draw(st.sampled_from(("1", "30", "100", "1500m")))
    if asked:
        form["capacity"] = {"requests": asked}
    if draw(st.integers(0, 3)) == 0:
        form["selectors"] = [{"cel": {"expression": draw(st.sampled_from(further))}}]
    return form


@st.composite
def specs(draw: st.DrawFn, further: tuple[str, ...] = EXACT) -> Manifest:
    """Return the spec of a claim with up to three requests."""
    requests = []
    for index in range(draw(st.integers(1, 3))):
        request: Manifest = {"name": f"r{index}"}
        if draw(st.integers(0, 3)):
            request["exactly"] = draw(forms(further=further))
        else:
            request["firstAvailable"] = [
                {"name": f"s{part}", **draw(forms(is_alternative=True, further=further))}
                for part in range(draw(st.integers(1, 3)))
            ]
        requests.append(request)
    return {"devices": {"requests": requests}}


@st.composite
def allocations(draw: st.DrawFn, spec: Manifest, supply: DeviceSuppliers) -> Manifest:
    """Return a status with an allocation as kube-scheduler would make it, of any free devices."""
    results: list[Manifest] = []
    for request in spec["devices"]["requests"]:
        form = request.get("exactly")
        name = request["name"]
        if form is None:
            form = draw(st.sampled_from(request["firstAvailable"]))
            name = f"{name}/{form['name']}"
        fitting = resource_claim_oracle.fitting(form, supply)
        if form.get("allocationMode") == "All":
            pool = fitting[0][0].pool if fitting else ""
            chosen = [each for each in fitting if each[0].pool == pool]
        else:
            count = min(int(form["count"]), 3) if fitting else 0
            chosen = [draw(st.sampled_from(fitting)) for _ in range(count)]
        for device, _ in chosen:
            results.append(_result(name, form, device))
    return {"allocation": {"devices": {"results": results[:32]}}}


def _result(name: str, form: Manifest, device: resource_claim_oracle.CardDevice) -> Manifest:
    place = {"driver": device.driver, "pool": device.pool, "device": device.content["name"]}
    result: Manifest = {"request": name, **place}
    if form.get("adminAccess"):
        result["adminAccess"] = True
    if device.is_shared:
        asked = form.get("capacity", {}).get("requests", {})
        taken = resource_claim_oracle.taken(device, asked)
        assert taken is not None, "the device fits"
        result["shareID"] = "7f0c1f44-0000-4000-8000-000000000000"
        result["consumedCapacity"] = {
            capacity: f"{amount * 1_000}m" for capacity, amount in taken.items()
        }
    return result
