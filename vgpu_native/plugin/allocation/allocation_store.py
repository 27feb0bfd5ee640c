"""Allocations: what was handed out, and to whom as far as is known. Each is a directory.

An answer names a directory of its own before it is known for which container it is; the answer is
fixed then, the content of the directory is not. `record` in it says what the answer was and whom it
is tied to, and `limits` is the limits page. The container's processes share what they use in a
region, which is in a slot, or where no slots are mounted in the directory `region`. All but slots
outlives the plugin, the kubelet and the machine's power.
"""

import secrets
import stat
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

import msgspec
import structlog

from vgpu_native.plugin.allocation.directory_removal import remove_tree
from vgpu_native.plugin.allocation.region_file_systems import RegionSlots, slot_in
from vgpu_native.plugin.grpc_status import failed_precondition
from vgpu_native.plugin.kubelet.kubelet_checkpoint import CheckpointEntry
from vgpu_native.plugin.placement_source import PlacedContainer
from vgpu_native.shared.atomic_file import sync_directory, write_whole
from vgpu_native.shared.change_counter import ChangeCounter

ALLOCATIONS_MAX: Final = 4_096
"""Most allocations that are kept; a kubelet runs some hundred pods."""

NOTED_MICROSECONDS: Final = 2_000_000
"""After so long, the kubelet has noted an answer, or has not got it."""

_ANYBODY: Final = 0o1777
_NOBODY_ELSE: Final = 0o700
_log: Final = structlog.get_logger("vgpu_native.plugin")


class ContainerOwner(msgspec.Struct, frozen=True):
    """The container that an allocation is for, as `PlacedContainer` names it."""

    namespace: str
    pod: str
    uid: str
    name: str

    @property
    def key(self) -> tuple[str, str]:
        """Return what tells it from all others."""
        return self.uid, self.name


class Allocation(msgspec.Struct, frozen=True):
    """One answer. `token` is the name of its directory, `ids` are those of the kubelet.

    `cards` are in the answer, in the order in which the container sees them, and `limited` says
    whether the library is; with `cdi` neither is decided before the start. `owner` is a guess until
    the allocation is `tied`; `problem` says why it cannot be. `time` in µs of Unix time.
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
    """Return what an allocation notes of a container."""
    return ContainerOwner(container.namespace, container.pod, container.uid, container.name)


class AllocationStore:
    """All allocations of this node, in memory and on disk."""

    def __init__(self, directory: Path, slots: RegionSlots | None = None) -> None:
        """Keep them below a directory, and regions in slots. `load` reads what is there."""
        self._directory = directory
        self.slots = slots or RegionSlots(directory / "slots")
        # In the order in which they were made: clocks are put back.
        self._known: dict[str, Allocation] = {}
        self.changes = ChangeCounter()

    def load(self) -> None:
        """Read what was kept. Raises OSError. What cannot be read is left where it is."""
        self._directory.mkdir(parents=True, exist_ok=True)
        # Users of the host have no business where a container can leave a program that is setuid.
        # The container needs no way there: what it has mounted is mounted by root.
        self._directory.chmod(_NOBODY_ELSE)
        found_here = []
        for directory in sorted(self._directory.iterdir()):
            try:
                found = msgspec.json.decode((directory / "record").read_bytes(), type=Allocation)
            except (OSError, msgspec.MsgspecError) as error:
                _log.warning("allocation_not_read", directory=str(directory), error=str(error))
                continue
            if found.token == directory.name:
                found_here.append(found)
        for found in sorted(found_here, key=lambda one: (one.time, one.token)):
            self._known[found.token] = found
        self.changes.increment()

    def all(self) -> list[Allocation]:
        """Return all of them, the oldest first."""
        return list(self._known.values())

    def latest(self) -> Allocation | None:
        """Return the one that was made last."""
        return next(reversed(self._known.values()), None)

    def tied(self) -> list[Allocation]:
        """Return those whose container is known for sure."""
        return [one for one in self.all() if one.tied]

    def get(self, token: str) -> Allocation | None:
        """Return the allocation of a token."""
        return self._known.get(token)

    def with_ids(self, ids: Collection[str]) -> list[Allocation]:
        """Return those of exactly these ids, the newest first."""
        wanted = set(ids)
        return [one for one in reversed(self.all()) if set(one.ids) == wanted]

    def given(self, now: int, entries: Sequence[CheckpointEntry] | None) -> set[tuple[str, str]]:
        """Return the keys of the containers that have answers; `now` in µs of Unix time.

        The kubelet's checkpoint says who they are, with those whose answers it cannot have noted
        yet; where it cannot be read, they are all whom we answered.
        """
        if entries is None:
            return {one.owner.key for one in self._known.values() if one.owner}
        young = (one for one in self._known.values() if is_fresh(one, now))
        noted = {(entry.uid, entry.container) for entry in entries}
        return noted | {one.owner.key for one in young if one.owner and not one.tied}

    def directory(self, allocation: Allocation) -> Path:
        """Return the directory of an allocation."""
        return self._directory / allocation.token

    def page(self, allocation: Allocation) -> Path:
        """Return the path of its limits page."""
        return self.directory(allocation) / "limits"

    def region(self, allocation: Allocation) -> Path:
        """Return the path of the directory in which its container makes the region."""
        slot = slot_in(allocation.token)
        return self.slots.path(slot) if slot else self.directory(allocation) / "region"

    def make(self, ids: Collection[str], *, cdi: bool) -> Allocation:
        """Return a new allocation with an empty directory and region. Raises OSError, Refused."""
        if len(self._known) >= ALLOCATIONS_MAX:
            raise failed_precondition(
                f"{len(self._known)} allocations in {self._directory}: that is the most; those of"
                " pods that have ended are removed when the kubelet's checkpoint can be read"
            )
        # Also those that were dropped keep their slots, until their directories are removed.
        slot = self.slots.free(one.name for one in self._directory.iterdir())
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

    def restore(
        self,
        token: str,
        ids: Collection[str],
        cards: Collection[str],
        *,
        limited: bool,
        cdi: bool,
    ) -> Allocation:
        """Make an allocation again whose record is lost. Raises OSError."""
        found = Allocation(token, tuple(sorted(ids)), _now(), tuple(cards), limited, cdi)
        self._make_directories(found)
        self.put(found)
        return found

    def put(self, allocation: Allocation) -> None:
        """Keep an allocation as it is now. Raises OSError, and then nothing has changed."""
        record = msgspec.json.format(msgspec.json.encode(allocation)) + b"\n"
        write_whole(self.directory(allocation) / "record", record, 0o644)
        self._known[allocation.token] = allocation
        self.changes.increment()

    def drop(self, allocation: Allocation) -> None:
        """Forget an allocation; its directory is an orphan then. Raises OSError."""
        (self.directory(allocation) / "record").unlink(missing_ok=True)
        if self._known.pop(allocation.token, None):
            self.changes.increment()

    def release(self, directory: Path) -> None:
        """Remove what was left by the container of a directory that is dropped. Raises OSError."""
        if slot := slot_in(directory.name):
            self.slots.clear(slot)
        remove_tree(directory)

    def orphans(self, before: int) -> list[Path]:
        """Return directories without a record that were last changed before a time, in µs.

        They are of allocations that were dropped, or could not be kept. Raises OSError.
        """
        return [
            one
            for one in sorted(self._directory.iterdir())
            if one.name not in self._known
            and not (one / "record").exists()
            and one.lstat().st_mtime_ns // 1_000 < before
        ]

    def _make_directories(self, allocation: Allocation) -> None:
        self.directory(allocation).mkdir(mode=0o755, exist_ok=True)
        if not slot_in(allocation.token):
            region = self.region(allocation)
            region.mkdir(exist_ok=True)
            # Whatever user the container runs as; what the mask took away is given back.
            region.chmod(_ANYBODY)
        sync_directory(self._directory)


def is_fresh(allocation: Allocation, now: int) -> bool:
    """Return whether the kubelet need not have noted an answer yet."""
    return abs(now - allocation.time) <= NOTED_MICROSECONDS


def _now() -> int:
    return time.time_ns() // 1_000


def is_plain_file(path: Path) -> bool:
    """Return whether there is a regular file, and no link to one."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False
