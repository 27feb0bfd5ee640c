"""Resource claim oracle: the charges of pods and claims, from plain lists of the API server alone.

It is written from the pages and from the rules of kube-scheduler, without any code of the product.
A claim of a template counts with its pod, another claim by itself. A claim that is allocated counts
as what it consumes, another as the most that it could consume. All amounts are rational numbers
until the end, because quantities may be fractions.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from math import ceil
from typing import Any, Final, NamedTuple

Manifest = dict[str, Any]
Amounts = Counter[str]

DEVICES_MAX: Final = 32
CARDS: Final = "nvidia.com/gpu"
MEMORY: Final = "nvidia.com/gpumem"
CORES: Final = "nvidia.com/gpucores"
ALL_TYPES: Final = (CARDS, MEMORY, CORES)
FULL_CORES: Final = 100
MEBIBYTE: Final = 2**20
CLAIM_OF: Final = "resource.kubernetes.io/pod-claim-name"
_SUFFIXES: Final = {
    "": Fraction(1),
    "m": Fraction(1, 1000),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
}

Accepts = Callable[[str, str, Manifest], bool]
"""Whether an expression accepts a device of a driver."""


class CardDevice(NamedTuple):
    """A device of a complete pool, as its slice has it."""

    driver: str
    pool: str
    content: Manifest

    @property
    def is_shared(self) -> bool:
        """Return whether several claims may use it."""
        return bool(self.content.get("allowMultipleAllocations", False))

    @property
    def capacities(self) -> dict[str, Manifest]:
        """Return the capacities by their names without the driver's domain."""
        own = f"{self.driver}/"
        return {
            name.removeprefix(own): value
            for name, value in self.content.get("capacity", {}).items()
        }


class DeviceSuppliers(NamedTuple):
    """Slices and classes as listed, and what their drivers and expressions mean.

    `gpu_drivers` are the drivers of GPUs. `types` are the known types of cards.
    """

    slices: Sequence[Manifest]
    classes: Sequence[Manifest]
    gpu_drivers: frozenset[str]
    accepts: Accepts
    types: tuple[str, ...] = ()


def devices_of(supply: DeviceSuppliers) -> list[CardDevice]:
    """Return the devices of complete pools: all slices of the highest generation are there."""
    pools: dict[tuple[str, str], list[Manifest]] = {}
    for each in supply.slices:
        spec = each["spec"]
        pools.setdefault((spec["driver"], spec["pool"]["name"]), []).append(spec)
    devices: list[CardDevice] = []
    for (driver, pool), specs in pools.items():
        newest = max(spec["pool"].get("generation", 0) for spec in specs)
        current = [spec for spec in specs if spec["pool"].get("generation", 0) == newest]
        contents = [content for spec in current for content in spec.get("devices", ())]
        whole = len(current) == current[0]["pool"]["resourceSliceCount"]
        if whole and len({content["name"] for content in contents}) == len(contents):
            devices += [CardDevice(driver, pool, content) for content in contents]
    return devices


def bound_of(spec: Manifest, supply: DeviceSuppliers) -> Amounts | None:
    """Return the most that a claim could consume, None if no claim may have so many devices."""
    requests = [_forms(request) for request in spec.get("devices", {}).get("requests", ())]
    least = sum(min(map(_least, forms)) for forms in requests)
    if least > DEVICES_MAX:
        return None
    total: Amounts = Counter()
    for forms in requests:
        most: Amounts = Counter()
        room = DEVICES_MAX - (least - min(map(_least, forms)))
        for form in forms:
            if _least(form) <= room:
                most |= _of_form(form, room, supply)
        total += most
    return total


def is_servable(spec: Manifest, supply: DeviceSuppliers) -> bool:
    """Return whether each request, with each alternative, has a device that could serve it."""
    return all(
        form.get("adminAccess") or fitting(form, supply)
        for request in spec.get("devices", {}).get("requests", ())
        for form in _forms(request)
    )


def allocation_of(claim: Manifest, supply: DeviceSuppliers) -> Amounts | None:
    """Return the consumed amounts of a claim, None if it is not allocated."""
    allocation = claim.get("status", {}).get("allocation")
    if allocation is None:
        return None
    known = {
        (spec["driver"], spec["pool"]["name"], content["name"]): content
        for spec in (each["spec"] for each in supply.slices)
        for content in spec.get("devices", ())
    }
    total: Amounts = Counter()
    for result in allocation.get("devices", {}).get("results", ()):
        if result["driver"] not in supply.gpu_drivers or result.get("adminAccess"):
            continue
        place = result["driver"], result["pool"], result["device"]
        device = CardDevice(result["driver"], result["pool"], known[place])
        consumed = result.get("consumedCapacity")
        if consumed is None:
            used = _whole(device)
        else:
            own = f"{device.driver}/"
            plain = {name.removeprefix(own): quantity(text) for name, text in consumed.items()}
            used = _amounts(plain)
        total += _typed(used, device, supply)
    return total


def charge_of(claim: Manifest, supply: DeviceSuppliers) -> Amounts:
    """Return the charge of a claim that exists; one that may never be allocated counts nothing."""
    given = allocation_of(claim, supply)
    return given if given is not None else bound_of(claim["spec"], supply) or Counter()


def owner_of(claim: Manifest, pods: Sequence[Manifest]) -> Manifest | None:
    """Return the pod that a claim counts with: the controller whose status names the claim."""
    references = claim["metadata"].get("ownerReferences", ())
    for reference in references:
        if not reference.get("controller") or reference["kind"] != "Pod":
            continue
        for pod in pods:
            if pod["metadata"]["uid"] == reference["uid"] and _names(pod, claim):
                return pod
    return None


def of_pod(
    pod: Manifest,
    pods: Sequence[Manifest],
    claims: Sequence[Manifest],
    templates: Sequence[Manifest],
    supply: DeviceSuppliers,
    apart: frozenset[str] = frozenset(),
) -> Amounts:
    """Return the charge of a pod for its claims: those made for it, and those to be made.

    Claims with a uid in `apart` were admitted to stand for themselves, and add nothing.
    """
    total: Amounts = Counter()
    made = {
        claim["metadata"].get("annotations", {}).get(CLAIM_OF, ""): claim
        for claim in claims
        if (owner := owner_of(claim, pods)) and owner["metadata"]["uid"] == pod["metadata"]["uid"]
    }
    for used in pod["spec"].get("resourceClaims", ()):
        if "resourceClaimTemplateName" not in used:
            continue
        if used["name"] in made:
            claim = made[used["name"]]
            is_apart = claim["metadata"]["uid"] in apart
            total += Counter() if is_apart else charge_of(claim, supply)
        else:
            total += of_template(
                pod["metadata"]["namespace"], used["resourceClaimTemplateName"], templates, supply
            )
    return total


def of_pod_spec(
    namespace: str, spec: Manifest, templates: Sequence[Manifest], supply: DeviceSuppliers
) -> Amounts:
    """Return the charge of each pod of a workload for the claims of its templates."""
    total: Amounts = Counter()
    for used in spec.get("resourceClaims", ()):
        if "resourceClaimTemplateName" in used:
            total += of_template(namespace, used["resourceClaimTemplateName"], templates, supply)
    return total


def of_template(
    namespace: str, name: str, templates: Sequence[Manifest], supply: DeviceSuppliers
) -> Amounts:
    """Return the bound of a template; one that does not exist counts nothing."""
    for template in templates:
        metadata = template["metadata"]
        if (metadata["namespace"], metadata["name"]) == (namespace, name):
            return bound_of(template["spec"]["spec"], supply) or Counter()
    return Counter()


def standing_alone(
    pods: Sequence[Manifest],
    claims: Sequence[Manifest],
    supply: DeviceSuppliers,
    apart: frozenset[str] = frozenset(),
) -> Iterator[tuple[Manifest, Amounts]]:
    """Yield the claims that are charged by themselves, each once, with their charge."""
    for claim in claims:
        counts_with_pod = owner_of(claim, pods) is not None or _is_of_extended_resource(claim, pods)
        if claim["metadata"]["uid"] in apart or not counts_with_pod:
            charge = charge_of(claim, supply)
            if charge:
                yield claim, charge


def quantity(text: str | int) -> Fraction:
    """Read a quantity of the API."""
    written = str(text)
    digits = written.rstrip("mkMGTi")
    factor = _SUFFIXES[written[len(digits) :]]
    return Fraction(digits) * factor


def _names(pod: Manifest, claim: Manifest) -> bool:
    here = claim["metadata"]["namespace"] == pod["metadata"]["namespace"]
    statuses = pod.get("status", {}).get("resourceClaimStatuses", ())
    named = [status.get("resourceClaimName") for status in statuses]
    return here and claim["metadata"]["name"] in named


def _is_of_extended_resource(claim: Manifest, pods: Sequence[Manifest]) -> bool:
    """Return whether the scheduler made a claim for what its pod asks of an extended resource."""
    for pod in pods:
        status = pod.get("status", {}).get("extendedResourceClaimStatus", {})
        owners = [each["uid"] for each in claim["metadata"].get("ownerReferences", ())]
        if status.get("resourceClaimName") == claim["metadata"]["name"]:
            return pod["metadata"]["uid"] in owners
    return False


def _forms(request: Manifest) -> list[Manifest]:
    """Return the alternatives of a request."""
    return [request["exactly"]] if "exactly" in request else request["firstAvailable"]


def _least(form: Manifest) -> int:
    """Return the least number of devices of a request."""
    return 1 if form.get("allocationMode") == "All" else int(form.get("count", 1))


def _of_form(form: Manifest, room: int, supply: DeviceSuppliers) -> Amounts:
    """Return the most of a request that may have `room` devices."""
    if form.get("adminAccess"):
        return Counter()
    candidates = fitting(form, supply)
    if not candidates:
        return Counter()
    if form.get("allocationMode") == "All":
        count = min(max(Counter(device.pool for device, _ in candidates).values()), room)
    else:
        count = int(form.get("count", 1))
    most: Amounts = Counter()
    for device, used in candidates:
        most |= _typed(used, device, supply)
    return Counter({name: amount * count for name, amount in most.items()})


def fitting(form: Manifest, supply: DeviceSuppliers) -> list[tuple[CardDevice, Amounts]]:
    """Return the GPUs that could serve a request, and what it would be charged for each."""
    asked = form.get("capacity", {}).get("requests", {})
    devices: list[tuple[CardDevice, Amounts]] = []
    for device in _accepted(form, supply):
        if device.driver not in supply.gpu_drivers:
            continue
        used = _consumed(device, asked)
        if used is not None:
            devices.append((device, used))
    return devices


def _accepted(form: Manifest, supply: DeviceSuppliers) -> Iterator[CardDevice]:
    classes = {each["metadata"]["name"]: each["spec"] for each in supply.classes}
    spec = classes.get(form["deviceClassName"])
    if spec is None:
        return
    selectors = [*spec.get("selectors", ()), *form.get("selectors", ())]
    expressions = [selector["cel"]["expression"] for selector in selectors]
    for device in devices_of(supply):
        if all(supply.accepts(text, device.driver, device.content) for text in expressions):
            yield device


def _consumed(device: CardDevice, asked: Mapping[str, str]) -> Amounts | None:
    """Return the charge of a request on a device, None if the device cannot serve it."""
    capacities = taken(device, asked)
    if capacities is None:
        return None
    return _amounts(capacities) if device.is_shared else _whole(device)


def taken(device: CardDevice, asked: Mapping[str, str]) -> dict[str, Fraction] | None:
    """Return the capacities that a request takes of a device, None if it cannot serve it."""
    own = f"{device.driver}/"
    plain: dict[str, Fraction] = {}
    for name, text in asked.items():
        short = name.removeprefix(own)
        if short not in device.capacities or short in plain:
            return None
        plain[short] = quantity(text)
    consumed: dict[str, Fraction] = {}
    for name, capacity in device.capacities.items():
        rounded = _rounded(plain.get(name), capacity)
        if rounded is None or rounded > quantity(capacity["value"]):
            return None
        consumed[name] = rounded
    return consumed


def _rounded(asked: Fraction | None, capacity: Manifest) -> Fraction | None:
    """Apply the policy of a capacity, None if it has no value that is large enough."""
    policy = capacity.get("requestPolicy") or {}
    if asked is None:
        return quantity(policy["default"] if "default" in policy else capacity["value"])
    if "validValues" in policy:
        larger = [each for each in map(quantity, policy["validValues"]) if each >= asked]
        return min(larger, default=None)
    if "validRange" in policy:
        valid = policy["validRange"]
        least = quantity(valid["min"])
        result = max(asked, least)
        if "step" in valid:
            step = quantity(valid["step"])
            result = least + ceil((result - least) / step) * step
        return None if "max" in valid and result > quantity(valid["max"]) else result
    return asked


def _whole(device: CardDevice) -> Amounts:
    memory = quantity(device.capacities["memory"]["value"])
    return Counter({CARDS: 1, MEMORY: ceil(memory / MEBIBYTE), CORES: FULL_CORES})


def _amounts(consumed: Mapping[str, Fraction]) -> Amounts:
    memory, cores = consumed["memory"], consumed["cores"]
    return Counter({CARDS: 1, MEMORY: ceil(memory / MEBIBYTE), CORES: ceil(cores)})


def _typed(used: Amounts, device: CardDevice, supply: DeviceSuppliers) -> Amounts:
    """Add the amounts of each type that a device is of."""
    total = Counter(used)
    for card_type in supply.types:
        if card_type in _product(device):
            total += Counter({f"{card_type}.{name}": amount for name, amount in used.items()})
    return total


def _product(device: CardDevice) -> str:
    attributes = device.content.get("attributes", {})
    return str(attributes.get("productName", {}).get("string", "")).lower()
