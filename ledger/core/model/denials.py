"""Denials: the reasons of a refusal, its numbers, holders and remedy, and its text for a user.

Reasons are public API: stable, CamelCase, listed in order of precedence. Bad input, no room and
"cannot decide" are three different families and never share a reason.
"""

from enum import StrEnum

import msgspec

from ledger.core.model import accounts, display_names
from ledger.core.model.events import AnyEvent


class Reason(StrEnum):
    """Why a request was refused, in order of precedence."""

    # The request is invalid or not permitted, independent of quotas.
    INVALID_REVIEW = "InvalidReview"
    UID_MISSING = "UidMissing"
    INVALID_QUANTITY = "InvalidQuantity"
    INVALID_PERCENTAGE = "InvalidPercentage"
    INVALID_CORES = "InvalidCores"
    INVALID_COUNT = "InvalidCount"
    TOO_MANY_DEVICES = "TooManyDevices"
    UNMAPPED_DEVICE_CLASS = "UnmappedDeviceClass"
    INVALID_POLICY = "InvalidPolicy"
    UNKNOWN_GPU_TYPE = "UnknownGpuType"
    GPU_TYPE_CHANGED = "GpuTypeChanged"
    RESERVED_ANNOTATION = "ReservedAnnotation"
    FORGED_OWNER = "ForgedOwner"
    LEAVES_QUOTA = "LeavesQuota"
    PRIVILEGED_CONTAINER = "PrivilegedContainer"
    NODE_ASSIGNED = "NodeAssigned"
    CLAIM_TEMPLATE_MISSING = "ClaimTemplateMissing"
    CLAIM_OF_OTHER_POD = "ClaimOfOtherPod"
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
    CARD_OFFERED_BY_DRA = "CardOfferedByDRA"
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
    CLAIM_UNDECIDED = "ClaimUndecided"
    OVERLOADED = "Overloaded"
    LOG_FULL = "LogFull"
    LEDGER_UNAVAILABLE = "LedgerUnavailable"
    LEDGER_STOPPED = "LedgerStopped"
    INTERNAL_ERROR = "InternalError"


class Shortage(msgspec.Struct, frozen=True):
    """One line that has no room: everything in the unit of its key.

    `requested` is the increase, and `short` the amount to release before it fits. `total` is the
    need of the object after the change, and `own` its present part of `used`. `reason` is that of
    this line, and `message` is one sentence about it without a full stop; both are empty in denials
    that an earlier version stored.
    """

    account: str
    resource: str
    requested: int
    used: int
    limit: int
    free: int
    short: int
    total: int = 0
    own: int = 0
    reason: str = ""
    message: str = ""


class Holder(msgspec.Struct, frozen=True):
    """A holder of the first short line and its amount; `since` in µs of Unix time.

    `key` is that of an object of the requesting namespace. For another namespace it is the
    qualified name, with the sum of that namespace; `since` is 0 then.
    """

    key: str
    amount: int
    since: int


class Denial(msgspec.Struct, frozen=True):
    """A refusal. `shortages` is empty unless there was no room; the first one is the headline.

    `transient` is True when the same request could succeed later without a change of a limit.
    `field` and `value` name the mistake in an invalid request.
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
"""The result of a command: events, none when nothing is left to do, or a denial."""


def sentence(denial: Denial) -> str:
    """Return a denial as text: short lines, amounts that would fit, holders, reason and id."""
    pieces = [denial.message, denial.remedy]
    if denial.holders:
        pieces.append(f"Used by: {_held(denial)}")
    return _joined(denial, pieces)


def _held(denial: Denial) -> str:
    """Return the holders of the first short line as text, with its unit where others are short."""
    lines = denial.shortages
    measure = display_names.Measure("")
    if len({accounts.resource_of(line.resource) for line in lines}) > 1:
        measure = display_names.measure_of(lines[0].account, lines[0].resource)
    held = ", ".join(f"{holder.key} {measure.amount(holder.amount)}" for holder in denial.holders)
    if not denial.holders_more:
        return held
    shared = not lines or accounts.kind(lines[0].account) is not accounts.AccountKind.QUOTA
    return f"{held} and {denial.holders_more} more{'' if shared else ' objects'}"


def brief(denial: Denial, *, overruled: bool = False) -> str:
    """Return a denial in few characters: the first short line and the amounts that would fit.

    An `overruled` denial does not stop its request, so it has no amounts that would fit.
    """
    lines = denial.shortages
    if lines and overruled:
        denial = msgspec.structs.replace(denial, remedy="")
    if not lines or not lines[0].message:
        return _joined(denial, [denial.message, denial.remedy])
    first = lines[0].message
    others = [display_names.also(line.message, first) for line in lines[1:] if line.message]
    return _joined(
        denial, [first, *(message.partition(": ")[0] for message in others), denial.remedy]
    )


def _joined(denial: Denial, pieces: list[str]) -> str:
    decision = f"; decision {denial.decision}" if denial.decision else ""
    sentences = [f"{piece}." for piece in pieces if piece]
    return " ".join([*sentences, f"[{denial.reason}{decision}]"])
