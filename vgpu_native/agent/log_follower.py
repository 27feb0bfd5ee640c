"""Log follower: reads the placements of a node from the log, also after lost connections.

It appends nothing, takes no lease and makes no stream. The placements are stored in
a small file with the position and hash of their last record. A restarted agent continues there, and
detects a log that is not the one it followed. The last placements apply until newer ones are
read, so limits of running containers do not depend on a reachable log.
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
from ledger.core.model.devices import CLAIM_PART
from ledger.log.log_port import Log, LogError, Lost, StreamMissing, Unreachable
from ledger.log.records import NewerSchema
from ledger.log.recovery import log_end_check
from ledger.log.recovery.log_end_check import LogHead
from vgpu_native.agent.node_placements import NodeImage, NodePlacements, PlacedPod, image_of
from vgpu_native.plugin.placement_source import PlacedContainer
from vgpu_native.shared.atomic_file import write_whole
from vgpu_native.shared.change_counter import ChangeCounter

RETRY_SECONDS: Final = 1.0
"""Pause before the next attempt to reach a log."""

LOST_RETRY_SECONDS: Final = 30.0
"""Pause before the next attempt to follow a log after a different one was found."""

KEEP_SECONDS: Final = 1.0
"""Interval between two writes of the placements to the file; each waits for the disk."""

ASK_SECONDS: Final = 5.0
"""Interval between two checks of a followed log; a lost connection gives no signal of its own."""

CATCH_UP_SECONDS: Final = 0.05
"""Interval between two checks of the position by a caller that waits for the log's end."""

BEHIND_RECORDS: Final = 20_000
"""A follower that is further behind starts from a newer snapshot, if there is one."""

_log: Final = structlog.get_logger("gpuledger.node.agent_process")

Connect = Callable[[], Awaitable[Log]]
"""Connects to the log. Raises Unreachable."""


class LogFollower:
    """The placements of one node, as the `PlacementSource` of the device plugin.

    `trouble` is the reason why nothing is followed, and empty while the log is followed.
    """

    def __init__(self, node: str, connect: Connect, *, file: Path) -> None:
        """`node` is qualified by its cluster; `file` stores its placements. Raises OSError."""
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

        It also rises when the follower has read to the log's end for the first time.
        """
        return self._changes.version

    @property
    def position(self) -> int:
        """The position of the newest record that was taken."""
        return self._tracker.position

    @property
    def is_current(self) -> bool:
        """Whether the follower has once read to the log's end since its start.

        Before that, the placements may be older than those that a predecessor used.
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
        """Return when the version differs from this one."""
        await self._changes.wait(version)

    async def caught_up(self) -> None:
        """Return when all records that the log holds now are read; there is no deadline."""
        while True:
            if await self._has_caught_up():
                return
            await asyncio.sleep(CATCH_UP_SECONDS)

    async def run(self) -> None:
        """Follow until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep_noting())
            tasks.create_task(self._keep_following())
            tasks.create_task(self._keep_requesting())

    async def _keep_following(self) -> None:
        while True:
            pause = await self._attempt()
            await asyncio.sleep(pause)

    async def _attempt(self) -> float:
        """Follow until an error; return the pause before the next attempt, in seconds."""
        try:
            log = await self._connect()
            try:
                await self._follow(log)
            finally:
                self._log, self._silent = None, False
                await log.close()
        except (Lost, NewerSchema) as error:
            self._report(str(error), is_other_log=True)
            # A follower without a record may have started before the log was created.
            return LOST_RETRY_SECONDS if self._tracker.position else RETRY_SECONDS
        except (LogError, TimeoutError) as error:
            self._report(str(error) or "the log does not answer in time")
        return RETRY_SECONDS

    async def _follow(self, log: Log) -> None:
        await self._resume(log)
        # The log counts as followed only when all records that it holds now are read.
        last = (await log.extent()).last
        self._update_trouble(last)
        self._log = log
        async for batch in log.follow(self._tracker.position + 1):
            changed = False
            for entry in batch:
                changed |= self._tracker.take(entry.position, entry.payload)
            if changed:
                self._change()
            self._update_trouble(last)
            await asyncio.sleep(0)
        raise Unreachable("the connection to the log was closed")

    async def _keep_requesting(self) -> None:
        while True:
            await asyncio.sleep(ASK_SECONDS)
            if self._log is not None:
                await self._ask(self._log)

    async def _ask(self, log: Log) -> int | None:
        """Check that the followed log answers, because its client waits for it silently.

        Return its last position; None when it does not answer or is no longer followed.
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
            self._update_trouble(last)
        return last

    async def _has_caught_up(self) -> bool:
        """Read to the present end of the log; False when the log does not answer."""
        log = self._log
        last = await self._ask(log) if log is not None else None
        if last is None:
            return False
        while self._log is log and self._tracker.position < last:  # noqa: ASYNC110 - it sends no signal
            await asyncio.sleep(CATCH_UP_SECONDS)
        return self._log is log

    async def _resume(self, log: Log) -> None:
        """Check that this is the log that was followed; continue from a newer snapshot, if any.

        Raises Lost.
        """
        tracker = self._tracker
        extent = await log.extent()
        if tracker.position > extent.last:
            raise Lost(f"the log ends at {extent.last}, {self._file} has seen {tracker.position}")
        witness = LogHead(tracker.position, tracker.hash.hex(), str(self._file))
        if not await log_end_check.holds_record(log, witness):
            raise Lost(f"position {tracker.position}, known from {self._file}, is missing")
        if tracker.position and extent.last - tracker.position <= BEHIND_RECORDS:
            return
        image = await _snapshot(log, tracker)
        if image is not None:
            self._tracker = NodePlacements(image)
            self._change()

    def _update_trouble(self, last: int) -> None:
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
                # The image is made here, between two records: in a thread it might mix two of them.
                await asyncio.to_thread(self._note, self._tracker.image())
        finally:
            self._note(self._tracker.image())

    def _note(self, image: NodeImage) -> None:
        """Store the placements; a full disk only makes the next start longer."""
        if image.position == self._kept_position:
            return
        try:
            write_whole(self._file, msgspec.msgpack.encode(image))
            self._kept_position = image.position
        except OSError as error:
            _log.warning("placements_not_kept", reason=str(error))


def _kept(file: Path, node: str) -> NodeImage:
    """Return the stored placements; none if they are unreadable or those of another node."""
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
    """Return the node's placements in the newest snapshot; None when there is no newer one."""
    try:
        return await _newer_image(log, tracker)
    except (StreamMissing, Unreachable) as error:
        _log.info("no_snapshot", reason=str(error))
        return None


async def _newer_image(log: Log, tracker: NodePlacements) -> NodeImage | None:
    async with contextlib.aclosing(log.load_snapshots()) as stored:
        async for snapshot in stored:
            if snapshot.position <= tracker.position:
                return None
            try:
                state = await asyncio.to_thread(snapshot_format.decode, snapshot.payload)
            except snapshot_format.InvalidSnapshot as error:
                _log.info("no_snapshot", reason=str(error))
                continue
            head = LogHead(state.position, state.hash.hex(), "a stored snapshot")
            if await log_end_check.holds_record(log, head):
                return image_of(state, tracker.node)
    return None


def _containers(residents: Sequence[PlacedPod]) -> tuple[PlacedContainer, ...]:
    """Return the containers of pods, each with its place among those of its pod.

    Cards of resource claims are handed out by the driver of the claim.
    """
    return tuple(
        PlacedContainer(
            namespace=pod.space,
            pod=pod.name,
            uid=pod.uid,
            name=part.container,
            order=order,
            shares=part.shares,
            time=pod.time,
            allocated=pod.stage >= Stage.ALLOCATED,
        )
        for pod in residents
        for order, part in enumerate(pod.parts)
        if part.shares and not part.container.startswith(CLAIM_PART)
    )
