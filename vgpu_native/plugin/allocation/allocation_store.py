"""Allocation store: the responses to `Allocate` and their containers; each has a directory.

A response names its own directory before its container is known. The response is fixed then; the
content of the directory is not. The file `record` holds the response and its container, and
`limits` is the limits page. The container's processes share their usage in a region. The region is
in a slot or, if no slots are mounted, in the directory `region`. All but slots outlives the plugin,
the kubelet and a power cut.
"""

import secrets
import time
from collections.abc import Collection
from pathlib import Path
from typing import Final

import msgspec
import structlog

from vgpu_native.plugin.allocation.directory_removal import remove_tree
from vgpu_native.plugin.allocation.region_file_systems import RegionSlots, slot_in
from vgpu_native.plugin.grpc_status import failed_precondition
from vgpu_native.plugin.placement_source import PlacedContainer
from vgpu_native.shared.atomic_file import sync_directory, write_whole
from vgpu_native.shared.change_counter import ChangeCounter

ALLOCATIONS_MAX: Final = 4_096
"""Maximum number of allocations; a kubelet runs some hundred pods."""

NOTED_MICROSECONDS: Final = 2_000_000
"""After so long, the kubelet has stored a response or did not receive it."""

_ALL_USERS: Final = 0o1777
_AGENT_ONLY: Final = 0o700
_log: Final = structlog.get_logger("vgpu_native.plugin")


class ContainerOwner(msgspec.Struct, frozen=True):
    """The container that an allocation is for, as `PlacedContainer` names it."""

    namespace: str
    pod: str
    uid: str
    name: str

    @property
    def key(self) -> tuple[str, str]:
        """Return the unique key of the container: its pod's uid and its name."""
        return self.uid, self.name


class Allocation(msgspec.Struct, frozen=True):
    """One response. `token` is the name of its directory, `ids` are the kubelet's device ids.

    `cards` are the cards of the response, in the container's device order; `limited` is set if the
    response mounts the library. With `cdi`, both are set before the start. `owner` is the likely
    container until PreStartContainer assigns it and sets `tied`; `problem` is the cause if it
    cannot. `time` is in µs of Unix time.
    """

    token: str
    ids: tuple[str, ...]
    time: int
    cards: tuple[str, ...] = ()
    limited: bool = True
    cdi: bool = False
    owner: ContainerOwner | None = None
    tied: bool = False
    problem: str = ""


def owner_of(container: PlacedContainer) -> ContainerOwner:
    """Return the owner that an allocation stores for a container."""
    return ContainerOwner(container.namespace, container.pod, container.uid, container.name)


class AllocationStore:
    """All allocations of this node, in memory and on disk."""

    def __init__(self, directory: Path, slots: RegionSlots | None = None) -> None:
        """Store allocations below a directory, and regions in slots. `load` reads the records."""
        self._directory = directory
        self.slots = slots or RegionSlots(directory / "slots")
        # In order of creation, because clocks may be set back.
        self._known: dict[str, Allocation] = {}
        self.changes = ChangeCounter()

    def load(self) -> None:
        """Read the records; leave unreadable ones in place. Raises OSError."""
        self._directory.mkdir(parents=True, exist_ok=True)
        # Keep users of the host out, because a container can leave a setuid program here. The
        # container itself needs no access by path, because root mounts its files.
        self._directory.chmod(_AGENT_ONLY)
        found_here = []
        for directory in sorted(self._directory.iterdir()):
            try:
                allocation = msgspec.json.decode(
                    (directory / "record").read_bytes(), type=Allocation
                )
            except (OSError, msgspec.MsgspecError) as error:
                _log.warning("allocation_not_read", directory=str(directory), error=str(error))
                continue
            if allocation.token == directory.name:
                found_here.append(allocation)
        for allocation in sorted(found_here, key=lambda record: (record.time, record.token)):
            self._known[allocation.token] = allocation
        self.changes.increment()

    def all(self) -> list[Allocation]:
        """Return all allocations, oldest first."""
        return list(self._known.values())

    def latest(self) -> Allocation | None:
        """Return the newest allocation."""
        return next(reversed(self._known.values()), None)

    def assigned(self) -> list[Allocation]:
        """Return the allocations that PreStartContainer has assigned to a container."""
        return [allocation for allocation in self.all() if allocation.tied]

    def get(self, token: str) -> Allocation | None:
        """Return the allocation of a token."""
        return self._known.get(token)

    def with_ids(self, ids: Collection[str]) -> list[Allocation]:
        """Return the allocations of exactly these ids, newest first."""
        wanted = set(ids)
        return [allocation for allocation in reversed(self.all()) if set(allocation.ids) == wanted]

    def directory(self, allocation: Allocation) -> Path:
        """Return the directory of an allocation."""
        return self._directory / allocation.token

    def page(self, allocation: Allocation) -> Path:
        """Return the path of its limits page."""
        return self.directory(allocation) / "limits"

    def region(self, allocation: Allocation) -> Path:
        """Return the path of the directory in which its container creates the region."""
        slot = slot_in(allocation.token)
        return self.slots.path(slot) if slot else self.directory(allocation) / "region"

    def make(self, ids: Collection[str], *, cdi: bool) -> Allocation:
        """Return a new allocation with an empty directory and region.

        Raises OSError, and RejectedCall if the store or all slots are full.
        """
        if len(self._known) >= ALLOCATIONS_MAX:
            raise failed_precondition(
                f"{len(self._known)} allocations in {self._directory}: that is the maximum; those"
                " of ended pods are removed once the kubelet's checkpoint is readable"
            )
        slot = self._free_slot()
        if slot is None:
            raise failed_precondition(
                f"all slots below {self.slots.directory} are taken: set SLOTS of the init container"
                " `slots` in deploy/agent/daemonset.yaml higher"
            )
        token = f"a{secrets.token_hex(12)}" + (f"-{slot}" if slot else "")
        made = Allocation(token, tuple(ids), _now(), cdi=cdi)
        if slot:
            self.slots.clear(slot)
        self._make_directories(made)
        return made

    @property
    def is_full(self) -> bool:
        """Whether `make` would fail for lack of room. Raises OSError."""
        return len(self._known) >= ALLOCATIONS_MAX or self._free_slot() is None

    def _free_slot(self) -> str | None:
        """Return a free slot, None if all are taken, empty without slots."""
        # Dropped allocations keep their slots until their directories are removed.
        return self.slots.free(directory.name for directory in self._directory.iterdir())

    def restore(
        self,
        token: str,
        ids: Collection[str],
        cards: Collection[str],
        *,
        limited: bool,
        cdi: bool,
    ) -> Allocation:
        """Restore an allocation whose record is lost. Raises OSError."""
        restored = Allocation(token, tuple(sorted(ids)), _now(), tuple(cards), limited, cdi)
        self._make_directories(restored)
        self.put(restored)
        return restored

    def put(self, allocation: Allocation) -> None:
        """Store an allocation. Raises OSError, without any change."""
        record = msgspec.json.format(msgspec.json.encode(allocation)) + b"\n"
        write_whole(self.directory(allocation) / "record", record, 0o644)
        self._known[allocation.token] = allocation
        self.changes.increment()

    def drop(self, allocation: Allocation) -> None:
        """Remove an allocation's record; its directory becomes an orphan. Raises OSError."""
        (self.directory(allocation) / "record").unlink(missing_ok=True)
        if self._known.pop(allocation.token, None):
            self.changes.increment()

    def release(self, directory: Path) -> None:
        """Remove a dropped allocation's directory and its container's files. Raises OSError."""
        if slot := slot_in(directory.name):
            self.slots.clear(slot)
        remove_tree(directory)

    def orphans(self, before: int) -> list[Path]:
        """Return directories without a record that last changed before a Unix time in µs.

        They belong to allocations that were dropped or never stored. Raises OSError.
        """
        return [
            directory
            for directory in sorted(self._directory.iterdir())
            if directory.name not in self._known
            and not (directory / "record").exists()
            and directory.lstat().st_mtime_ns // 1_000 < before
        ]

    def _make_directories(self, allocation: Allocation) -> None:
        self.directory(allocation).mkdir(mode=0o755, exist_ok=True)
        if not slot_in(allocation.token):
            region = self.region(allocation)
            region.mkdir(exist_ok=True)
            # The container may run as any user, and mkdir applies the umask.
            region.chmod(_ALL_USERS)
        sync_directory(self._directory)


def is_fresh(allocation: Allocation, now: int) -> bool:
    """Return whether an allocation is so new that the kubelet may not have stored it yet."""
    return abs(now - allocation.time) <= NOTED_MICROSECONDS


def _now() -> int:
    return time.time_ns() // 1_000
