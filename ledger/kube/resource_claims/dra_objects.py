"""Objects of `resource.k8s.io/v1` as far as the ledger reads them.

The API server of Kubernetes 1.34 and later serves this version. Fields and bounds are those of
`k8s.io/api/resource/v1`. Watches deliver the objects as `Workload`; `claim_of` and its siblings
convert them.
"""

from typing import Final

import msgspec

from ledger.kube.api.objects import ObjectMeta, Quantities, Workload

RESULTS_MAX: Final = 32
"""Most devices of one allocation (AllocationResultsMaxSize in Go)."""


class CelSelector(msgspec.Struct, frozen=True, gc=False):
    """A CEL expression about one device."""

    expression: str = ""


class ClaimDeviceSelector(msgspec.Struct, frozen=True, gc=False):
    """A condition of the devices of a class or request."""

    cel: CelSelector | None = None


class CapacityRequests(msgspec.Struct, frozen=True, gc=False):
    """Amounts of capacities that each device must give, by capacity name."""

    requests: Quantities | None = None


class ClaimDeviceRequest(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """One way to satisfy a request: `exactly`, or one of `firstAvailable`.

    `allocation_mode` is ExactCount (also if empty) or All. `name` is empty in `exactly`.
    """

    device_class_name: str = ""
    name: str = ""
    selectors: list[ClaimDeviceSelector] | None = None
    allocation_mode: str = ""
    count: int = 0
    admin_access: bool | None = None
    capacity: CapacityRequests | None = None


class ClaimRequest(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """One request of a claim, with exactly one of its two forms."""

    name: str = ""
    exactly: ClaimDeviceRequest | None = None
    first_available: list[ClaimDeviceRequest] | None = None


class DeviceClaim(msgspec.Struct, frozen=True, gc=False):
    """The requested devices of a claim, at most 32 requests."""

    requests: list[ClaimRequest] | None = None


class ClaimSpec(msgspec.Struct, frozen=True, gc=False):
    """The spec of a ResourceClaim. It is immutable."""

    devices: DeviceClaim = DeviceClaim()


class AllocatedResult(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """One allocated device; `request` is `main` or `main/sub`.

    `consumed_capacity` is given only for devices that several claims may share.
    """

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    share_id: str = msgspec.field(default="", name="shareID")
    consumed_capacity: Quantities | None = None


class AllocatedDevices(msgspec.Struct, frozen=True, gc=False):
    """The allocated devices of a claim, at most 32."""

    results: list[AllocatedResult] | None = None


class AllocationResult(msgspec.Struct, frozen=True, gc=False):
    """The allocation of a claim: set once, and cleared as a whole."""

    devices: AllocatedDevices = AllocatedDevices()


class ClaimConsumer(msgspec.Struct, frozen=True, gc=False):
    """An object that may use an allocated claim, usually a pod; its fields are not read."""


class ClaimStatus(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """The status of a ResourceClaim."""

    allocation: AllocationResult | None = None
    reserved_for: list[ClaimConsumer] | None = None


class ResourceClaim(msgspec.Struct, frozen=True, gc=False):
    """A ResourceClaim."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()


class TemplateSpec(msgspec.Struct, frozen=True, gc=False):
    """The metadata and the spec of the claims that are made from a template."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ClaimSpec = ClaimSpec()


class ResourceClaimTemplate(msgspec.Struct, frozen=True, gc=False):
    """A ResourceClaimTemplate. Its spec is immutable."""

    metadata: ObjectMeta = ObjectMeta()
    spec: TemplateSpec = TemplateSpec()


class ClassSpec(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """The spec of a DeviceClass, which may change under existing claims."""

    selectors: list[ClaimDeviceSelector] | None = None
    extended_resource_name: str = ""


class DeviceClass(msgspec.Struct, frozen=True, gc=False):
    """A DeviceClass."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ClassSpec = ClassSpec()


class AttributeValue(msgspec.Struct, frozen=True, gc=False):
    """The value of an attribute; `string` is None if it has another form."""

    string: str | None = None


class ValidRange(msgspec.Struct, frozen=True, gc=False):
    """The amounts of a capacity that may be consumed: from `min` in steps up to `max`."""

    min: str | int = "0"
    max: str | int | None = None
    step: str | int | None = None


class RequestPolicy(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """How requests of a capacity are rounded; `default` applies if none is made."""

    default: str | int | None = None
    valid_values: list[str | int] | None = None
    valid_range: ValidRange | None = None


class Capacity(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """A capacity of a device."""

    value: str | int = "0"
    request_policy: RequestPolicy | None = None


class SliceDevice(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """One device of a ResourceSlice."""

    name: str = ""
    attributes: dict[str, AttributeValue] | None = None
    capacity: dict[str, Capacity] | None = None
    allow_multiple_allocations: bool | None = None
    node_name: str = ""


class ResourcePool(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """The pool of a slice. Only the slices of its highest generation count, if all exist."""

    name: str = ""
    generation: int = 0
    resource_slice_count: int = 0


class SliceSpec(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """The spec of a ResourceSlice; `node_name` is empty for devices of several nodes."""

    driver: str = ""
    pool: ResourcePool = ResourcePool()
    node_name: str = ""
    devices: list[SliceDevice] | None = None


class ResourceSlice(msgspec.Struct, frozen=True, gc=False):
    """A ResourceSlice."""

    metadata: ObjectMeta = ObjectMeta()
    spec: SliceSpec = SliceSpec()


def claim_of(seen: Workload) -> ResourceClaim:
    """Return a watched object as a claim. Raises msgspec.ValidationError."""
    return ResourceClaim(
        seen.metadata,
        msgspec.convert(seen.spec or {}, ClaimSpec),
        msgspec.convert(seen.status or {}, ClaimStatus),
    )


def template_of(seen: Workload) -> ResourceClaimTemplate:
    """Return a watched object as a template. Raises msgspec.ValidationError."""
    return ResourceClaimTemplate(seen.metadata, msgspec.convert(seen.spec or {}, TemplateSpec))


def class_of(seen: Workload) -> DeviceClass:
    """Return a watched object as a class. Raises msgspec.ValidationError."""
    return DeviceClass(seen.metadata, msgspec.convert(seen.spec or {}, ClassSpec))


def slice_of(seen: Workload) -> ResourceSlice:
    """Return a watched object as a slice. Raises msgspec.ValidationError."""
    return ResourceSlice(seen.metadata, msgspec.convert(seen.spec or {}, SliceSpec))
