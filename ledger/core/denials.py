"""Denials: a refusal is a value with numbers, holders and a remedy, and one human sentence.

Reasons are public API: stable, CamelCase, listed in order of precedence. Bad input, no room and
"cannot decide" are three different families and never share a reason.
"""

from enum import StrEnum

import msgspec

from ledger.core.accounts import Kind, kind, parts
from ledger.core.events import AnyEvent


class Reason(StrEnum):
    """Why a request was refused, in order of precedence."""

    # The request cannot be understood or is not permitted, whatever the quota.
    INVALID_REVIEW = "InvalidReview"
    UID_MISSING = "UidMissing"
    INVALID_QUANTITY = "InvalidQuantity"
    INVALID_PERCENTAGE = "InvalidPercentage"
    INVALID_CORES = "InvalidCores"
    INVALID_COUNT = "InvalidCount"
    INVALID_POLICY = "InvalidPolicy"
    UNKNOWN_GPU_TYPE = "UnknownGpuType"
    GPU_TYPE_CHANGED = "GpuTypeChanged"
    RESERVED_ANNOTATION = "ReservedAnnotation"
    FORGED_OWNER = "ForgedOwner"
    LEAVES_QUOTA = "LeavesQuota"
    PRIVILEGED_CONTAINER = "PrivilegedContainer"
    NODE_ASSIGNED = "NodeAssigned"
    CARD_MEMORY_UNKNOWN = "CardMemoryUnknown"
    ATTEMPT_DIFFERS = "AttemptDiffers"
    CLUSTER_NAME_TAKEN = "ClusterNameTaken"
    TOO_LARGE = "TooLarge"
    # There is no room.
    EXCEEDS_LIMIT = "ExceedsLimit"
    UNIVERSE_EXCEEDED = "UniverseExceeded"
    QUOTA_EXCEEDED = "QuotaExceeded"
    CARD_EXCEEDED = "CardExceeded"
    TOO_MANY_UNSETTLED = "TooManyUnsettled"
    LOG_SHARE_EXCEEDED = "LogShareExceeded"
    # The pod cannot have these cards of this node.
    POD_UNKNOWN = "PodUnknown"
    POD_PLACED = "PodPlaced"
    NODE_UNREGISTERED = "NodeUnregistered"
    NODE_BUSY = "NodeBusy"
    INVALID_PLACEMENT = "InvalidPlacement"
    NODE_INSUFFICIENT_DEVICE = "NodeInsufficientDevice"
    CARD_NOT_FOUND = "CardNotFound"
    CARD_NOT_HEALTHY = "CardNotHealthy"
    CARD_CORDONED = "CardCordoned"
    CARD_TYPE_MISMATCH = "CardTypeMismatch"
    NUMA_NOT_FIT = "NumaNotFit"
    CARD_UUID_MISMATCH = "CardUuidMismatch"
    CARD_TIME_SLICING_EXHAUSTED = "CardTimeSlicingExhausted"
    EXCLUSIVE_CONFLICT = "ExclusiveDeviceAllocateConflict"
    RESOURCE_QUOTA_NOT_FIT = "ResourceQuotaNotFit"
    CARD_INSUFFICIENT_MEMORY = "CardInsufficientMemory"
    CARD_INSUFFICIENT_CORE = "CardInsufficientCore"
    CARD_COMPUTE_UNITS_EXHAUSTED = "CardComputeUnitsExhausted"
    CARD_MIG_INFEASIBLE = "CardMigTopologyInfeasible"
    CARD_CLAIMED = "CardClaimed"
    ALLOCATED_INSUFFICIENT = "AllocatedCardsInsufficientRequest"
    # The ledger cannot decide now.
    OVERLOADED = "Overloaded"
    LOG_FULL = "LogFull"
    LEDGER_UNAVAILABLE = "LedgerUnavailable"
    LEDGER_STOPPED = "LedgerStopped"
    INTERNAL_ERROR = "InternalError"


class Shortage(msgspec.Struct, frozen=True):
    """One line that has no room: everything in the unit of its key."""

    account: str
    resource: str
    requested: int
    used: int
    limit: int
    free: int
    short: int


class Holder(msgspec.Struct, frozen=True):
    """Who holds how much of the first line that is short; `since` in microseconds of Unix time.

    `key` is that of an object of the namespace that asks. Of others it is the qualified namespace
    alone, with all that is held there; `since` is 0 then.
    """

    key: str
    amount: int
    since: int


class Denial(msgspec.Struct, frozen=True):
    """A refusal. `shortages` is empty unless there was no room; the first one is the headline.

    `transient` says whether the very same request could succeed later without anyone changing a
    limit. `field` and `value` name the culprit of a request that cannot be understood.
    """

    reason: Reason
    message: str
    transient: bool
    remedy: str = ""
    shortages: tuple[Shortage, ...] = ()
    holders: tuple[Holder, ...] = ()
    holders_more: int = 0
    decision: str = ""
    field: str = ""
    value: str = ""


Decision = list[AnyEvent] | Denial
"""What a command leads to: events, none when nothing is left to do, or a denial."""


def sentence(denial: Denial) -> str:
    """Render the one line a user reads: reason, numbers, later or never, holders, remedy, id."""
    pieces = [f"{denial.reason}: {denial.message}."]
    if denial.shortages:
        pieces.append("Would fit later." if denial.transient else "Can never fit this limit.")
    if denial.holders:
        held = ", ".join(f"{holder.key} {holder.amount}" for holder in denial.holders)
        more = f", +{denial.holders_more} more" if denial.holders_more else ""
        pieces.append(f"Held by: {held}{more}.")
    if denial.remedy:
        pieces.append(f"{denial.remedy}.")
    if denial.decision:
        pieces.append(f"Decision {denial.decision}.")
    return " ".join(pieces)


def describe(shortage: Shortage) -> str:
    """Render the numbers of one shortage, all in one unit."""
    return (
        f"{shortage.resource} on {display(shortage.account)}: requested {shortage.requested}, "
        f"used {shortage.used} of {shortage.limit}, {shortage.free} free, short {shortage.short}"
    )


def display(account: str) -> str:
    """Name an account as a user knows it."""
    cluster, namespace, name = parts(account)
    if kind(account) is Kind.QUOTA:
        return f"quota {namespace}/{name} of cluster {cluster}"
    if kind(account) is Kind.UNIVERSE:
        return f"universe quota {name}"
    return f"card {name} of node {namespace}"
