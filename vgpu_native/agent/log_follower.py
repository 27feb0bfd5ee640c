"""The log follower: it keeps a node's placements at the log's end, also after lost connections.

It only reads: it appends nothing, bids for nothing and makes no stream. What it knows is kept in a
small file, with the hash of the record it was known at, so that an agent which starts again goes on
where it was and notices a log that is not the one it followed. Whatever happens to the log, what
was known last still holds: limits of running containers do not depend on the log being there.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec
import structlog

from ledger.core import snapshot_format
from ledger.core.model.cards import Stage
from ledger.log.log_port import Log, LogError, Lost, Unreachable
from ledger.log.records import NewerSchema
from ledger.log.recovery import head_witness
from ledger.log.recovery.head_witness import LogHead
from vgpu_native.agent.node_placements import NodeImage, NodePlacements, PlacedPod, image_of
from vgpu_native.plugin.placement_source import PlacedContainer
from vgpu_native.shared.atomic_file import write_whole
from vgpu_native.shared.change_counter import ChangeCounter

RETRY_SECONDS: Final = 1.0
"""Wait before a log that could not be reached is tried again."""

LOST_RETRY_SECONDS: Final = 30.0
"""Wait before a log that is not the one that was followed is looked at again."""

KEEP_SECONDS: Final = 1.0
"""How often at most what is known is kept: each time waits for the disk."""

ASK_SECONDS: Final = 5.0
"""How often a log that is followed is asked whether it is there: one that is lost is silent."""

CATCH_UP_SECONDS: Final = 0.05
"""How often whoever waits for the log's end looks how far it was read."""

BEHIND_RECORDS: Final = 20_000
"""Who is further behind than this begins with a snapshot, where there is a newer one."""

_log: Final = structlog.get_logger("gpuledger.node.agent_process")

Connect = Callable[[], Awaitable[Log]]
"""Connects to the log. Raises Unreachable."""


class LogFollower:
    """The placements of one node, as a `Placements` of the device plugin.

    `trouble` says why nothing is followed, and is empty while all is well.
    """

    def __init__(self, node: str, connect: Connect, *, file: Path) -> None:
        """`node` is qualified by its cluster; `file` keeps what is known. Raises OSError."""
        self.trouble = "the log has not been opened yet"
        self._connect, self._file = connect, file
        self._tracker = NodePlacements(_kept(file, node))
        self._log: Log | None = None
        self._silent = False
        self._is_current = False
        self._changes = ChangeCounter()
        self._containers = _containers(self._tracker.residents)
        self._kept_position = self._tracker.position

    @property
    def version(self) -> int:
        """A number that rises with every change of the node's placements.

        It rises, too, when they are current for the first time.
        """
        return self._changes.version

    @property
    def position(self) -> int:
        """The position of the newest record that was taken."""
        return self._tracker.position

    @property
    def is_current(self) -> bool:
        """Whether all was known once since the start that the log held then.

        Before that, what is known may be older than what a predecessor acted on.
        """
        return self._is_current

    @property
    def residents(self) -> tuple[PlacedPod, ...]:
        """The pods that are placed on the node."""
        return self._tracker.residents

    def containers(self) -> Sequence[PlacedContainer]:
        """Return all containers with cards, of the pods that are placed on the node."""
        return self._containers

    async def wait(self, version: int) -> None:
        """Return when the version is another one than this."""
        await self._changes.wait(version)

    async def caught_up(self) -> None:
        """Return when all is known that the log held at the call, however long that takes."""
        while True:
            if await self._has_caught_up():
                return
            await asyncio.sleep(CATCH_UP_SECONDS)

    async def run(self) -> None:
        """Follow until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep_noting())
            tasks.create_task(self._keep_following())
            tasks.create_task(self._keep_asking())

    async def _keep_following(self) -> None:
        while True:
            pause = await self._attempt()
            await asyncio.sleep(pause)

    async def _attempt(self) -> float:
        """Follow until it breaks; return after how many seconds to try again."""
        try:
            log = await self._connect()
            try:
                await self._follow(log)
            finally:
                self._log, self._silent = None, False
                await log.close()
        except (Lost, NewerSchema) as error:
            self._report(str(error), is_other_log=True)
            # Who has seen nothing yet may be earlier than the log.
            return LOST_RETRY_SECONDS if self._tracker.position else RETRY_SECONDS
        except (LogError, TimeoutError) as error:
            self._report(str(error) or "the log does not answer in time")
        return RETRY_SECONDS

    async def _follow(self, log: Log) -> None:
        await self._resume(log)
        # Nothing is thought of the log before all that it holds now is known.
        last = (await log.extent()).last
        self._tell(last)
        self._log = log
        async for batch in log.follow(self._tracker.position + 1):
            changed = False
            for entry in batch:
                changed |= self._tracker.take(entry.position, entry.payload)
            if changed:
                self._change()
            self._tell(last)
            await asyncio.sleep(0)
        raise Unreachable("the connection to the log was closed")

    async def _keep_asking(self) -> None:
        while True:
            await asyncio.sleep(ASK_SECONDS)
            if self._log is not None:
                await self._ask(self._log)

    async def _ask(self, log: Log) -> int | None:
        """See whether the log that is followed is there: its client waits for it without a word.

        Return where it ends, None when it is not there, or is followed no more.
        """
        reason = ""
        last = None
        try:
            last = (await log.extent()).last
        except (LogError, TimeoutError) as error:
            reason = str(error) or "the log does not answer in time"
        if self._log is not log:
            return None
        if last is None:
            self._silent = True
            self._report(reason)
        elif self._silent:
            self._silent = False
            self._tell(last)
        return last

    async def _has_caught_up(self) -> bool:
        """Read up to where the log ends now, for as long as it is there."""
        log = self._log
        last = await self._ask(log) if log is not None else None
        if last is None:
            return False
        while self._log is log and self._tracker.position < last:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(CATCH_UP_SECONDS)
        return self._log is log

    async def _resume(self, log: Log) -> None:
        """See that this is the log that was followed, and go on from a snapshot if that is newer.

        Raises Lost.
        """
        tracker = self._tracker
        extent = await log.extent()
        if tracker.position > extent.last:
            raise Lost(f"the log ends at {extent.last}, {self._file} has seen {tracker.position}")
        witness = LogHead(tracker.position, tracker.hash.hex(), str(self._file))
        if not await head_witness.holds_record(log, witness):
            raise Lost(f"position {tracker.position}, known from {self._file}, is missing")
        if tracker.position and extent.last - tracker.position <= BEHIND_RECORDS:
            return
        image = await _snapshot(log, tracker)
        if image is not None:
            self._tracker = NodePlacements(image)
            self._change()

    def _tell(self, last: int) -> None:
        if self._tracker.position < last:
            self.trouble = f"reading the log: at {self._tracker.position} of {last}"
            return
        if self.trouble:
            self.trouble = ""
            _log.info("log_followed", position=self._tracker.position)
        if not self._is_current:
            self._is_current = True
            self._changes.increment()

    def _report(self, reason: str, *, is_other_log: bool = False) -> None:
        if reason != self.trouble and is_other_log:
            _log.warning("log_not_followed", reason=reason)
        elif reason != self.trouble:
            _log.warning("log_unreachable", reason=reason)
        self.trouble = reason

    def _change(self) -> None:
        self._containers = _containers(self._tracker.residents)
        self._changes.increment()

    async def _keep_noting(self) -> None:
        try:
            while True:
                await asyncio.sleep(KEEP_SECONDS)
                # Taken here, between two records: in a thread it might have a part of each.
                await asyncio.to_thread(self._note, self._tracker.image())
        finally:
            self._note(self._tracker.image())

    def _note(self, image: NodeImage) -> None:
        """Keep what is known; a disk that is full costs a longer start, and nothing else."""
        if image.position == self._kept_position:
            return
        try:
            write_whole(self._file, msgspec.msgpack.encode(image))
            self._kept_position = image.position
        except OSError as error:
            _log.warning("placements_not_kept", reason=str(error))


def _kept(file: Path, node: str) -> NodeImage:
    """Return what was kept of a node, nothing when it was of another or cannot be read."""
    with contextlib.suppress(FileNotFoundError):
        try:
            image = msgspec.msgpack.decode(file.read_bytes(), type=NodeImage)
        except msgspec.MsgspecError as error:
            _log.warning("placements_not_readable", file=str(file), reason=str(error))
        else:
            if image.node == node:
                return image
            _log.warning("placements_of_another_node", file=str(file), node=image.node)
    return NodeImage(node)


async def _snapshot(log: Log, tracker: NodePlacements) -> NodeImage | None:
    """Return what the newest snapshot says of the node, None when it says nothing newer."""
    try:
        stored = await log.load_snapshots()
    except LogError as error:
        _log.info("no_snapshot", reason=str(error))
        return None
    for snapshot in stored:
        if snapshot.position <= tracker.position:
            return None
        try:
            state = await asyncio.to_thread(snapshot_format.decode, snapshot.payload)
        except snapshot_format.InvalidSnapshot:
            continue
        head = LogHead(state.position, state.hash.hex(), "a stored snapshot")
        if await head_witness.holds_record(log, head):
            return image_of(state, tracker.node)
    return None


def _containers(residents: Sequence[PlacedPod]) -> tuple[PlacedContainer, ...]:
    """Return the containers of pods, each with its place among those of its pod."""
    return tuple(
        PlacedContainer(
            namespace=one.space,
            pod=one.name,
            uid=one.uid,
            name=part.container,
            order=order,
            shares=part.shares,
            time=one.time,
            allocated=one.stage >= Stage.ALLOCATED,
        )
        for one in residents
        for order, part in enumerate(one.parts)
        if part.shares
    )
