"""Random lives of a node: each started container has its own cards and limits.

Pods are placed, admitted in any order, started, resized and ended; kubelet and plugin restart, and
records are lost. One seed decides everything.
"""

import asyncio
import random
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from support.fakes.kubelet import Asked, Kubelet, NotStarted, Rejected
from support.harness.device_plugin import FakePlacements, Node, card, container, settings_in, share

from ledger.core.model.cards import Share
from vgpu_native.plugin.kubelet.kubelet_checkpoint import MARK
from vgpu_native.plugin.placement_source import PlacedContainer
from vgpu_native.plugin.server.plugin_server import DevicePluginServer

STEPS = 40
WITNESSES = ("both", "checkpoint", "pod resources")
PERMANENT = ("in another order", "its response has no limits")


class Life:
    """One node, and what happens to it."""

    def __init__(self, seed: int, directory: Path) -> None:
        self.random = random.Random(seed)
        self.cdi = bool(seed % 2)
        self.witness = WITNESSES[seed // 2 % 3]
        self.settings = settings_in(
            directory, cdi=self.cdi, look_seconds=0.02, allocate_seconds=0.5, verify_seconds=0.5
        )
        self.kubelet = Kubelet(directory / "kubelet")
        self.kubelet.follows_preferences = self.random.random() < 0.7
        self.kubelet.writes_checkpoint = self.witness != "pod resources"
        self.kubelet.speaks_of_pods = self.witness != "checkpoint"
        self.placed = FakePlacements()
        self.plugin = DevicePluginServer(self.settings, self.placed)
        self.task: asyncio.Task[None] | None = None
        self.pods = 0
        self.admitted: set[str] = set()
        self.started = self.refused = 0

    async def start_plugin(self) -> None:
        """Run a plugin with the files on disk."""
        self.kubelet.lists.clear()
        self.plugin = DevicePluginServer(self.settings, self.placed)
        self.plugin.devices.replace([card(0), card(1), card(2)])
        self.task = asyncio.create_task(self.plugin.run())
        await self.kubelet.wait_listed()

    async def stop_plugin(self) -> None:
        """End the plugin as it is."""
        assert self.task is not None
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def place(self) -> None:
        """Place a pod of one to three containers."""
        self.pods += 1
        init = self.witness != "pod resources" and self.random.random() < 0.4
        names = [*(["init"] if init else []), *(["main", "more"][: self.random.randint(1, 2)])]
        self.placed.add(
            *(
                container(f"p{self.pods}", *self._shares(), name=name, order=order, time=self.pods)
                for order, name in enumerate(names)
            )
        )

    async def admit(self) -> None:
        """Let the kubelet admit any pod that was placed."""
        waiting = sorted({placement.uid for placement in self.placed.containers()} - self.admitted)
        if not waiting:
            return
        uid = self.random.choice(waiting)
        placements = self._of(uid)
        asked = [
            Asked(placement.name, len(placement.shares), init=placement.name == "init")
            for placement in placements
        ]
        try:
            await self.kubelet.admit("team", placements[0].pod, uid, asked)
            self.admitted.add(uid)
        except Rejected as error:
            if "devices wanted" not in str(error):
                raise
            self._end(uid)

    async def start(self) -> None:
        """Start any container that was admitted, and look at what it has."""
        keys = sorted(self.kubelet.answers)
        if not keys:
            return
        uid, name = self.random.choice(keys)
        (wanted,) = (placement for placement in self._of(uid) if placement.name == name)
        try:
            answer = await self.kubelet.start_container(uid, name)
        except NotStarted as error:
            # With CDI all containers start, without it those that were not given another's cards.
            if self.cdi or not any(why in str(error) for why in PERMANENT):
                raise
            self.refused += 1
            self._end(uid)
            return
        self.started += 1
        self._check(wanted, answer)

    async def end(self) -> None:
        """End any pod."""
        if uids := sorted({placement.uid for placement in self.placed.containers()}):
            self._end(self.random.choice(uids))

    async def resize(self) -> None:
        """Let the ledger change what a pod has that has not started yet."""
        keys = sorted(
            {placement.key for placement in self.placed.containers()} - self.kubelet.answers.keys()
        )
        if keys:
            key = self.random.choice(keys)
            self.placed.replace(
                *(
                    replace(
                        placement,
                        shares=tuple(replace(it, memory=it.memory + 1) for it in placement.shares),
                    )
                    if placement.key == key
                    else placement
                    for placement in self.placed.containers()
                )
            )

    async def restart_kubelet(self) -> None:
        """Let the kubelet restart."""
        await self.kubelet.restart()
        await self.kubelet.wait_listed()

    async def restart_plugin(self) -> None:
        """Let the plugin restart; where the checkpoint has them, its records may be lost."""
        await self.stop_plugin()
        if self.witness != "pod resources" and self.random.random() < 0.5:
            shutil.rmtree(self.settings.state_dir)
        await self.start_plugin()

    async def step(self) -> None:
        """Let something happen."""
        what = (
            (self.place, 6),
            (self.admit, 6),
            (self.start, 8),
            (self.end, 2),
            (self.resize, 2),
            (self.restart_kubelet, 1),
            (self.restart_plugin, 1),
        )
        (chosen,) = self.random.choices(
            [action for action, _ in what], [weight for _, weight in what]
        )
        await chosen()

    def _check(self, wanted: PlacedContainer, answer: Any) -> None:
        allocation = self.plugin.allocations.get(answer.annotations[MARK])
        assert allocation is not None
        assert allocation.owner is not None
        assert allocation.owner.key == wanted.key
        assert set(allocation.cards) == set(wanted.cards)
        if not self.cdi:
            assert set(answer.envs["NVIDIA_VISIBLE_DEVICES"].split(",")) == set(wanted.cards)
        if allocation.limited:
            node = Node(self.kubelet, self.plugin, self.settings, self.placed)
            limits = node.limits(wanted.uid, wanted.name)
            assert limits == {card_share.uuid: card_share.memory for card_share in wanted.shares}
        else:
            assert wanted.exclusive

    def _shares(self) -> list[Share]:
        cards = self.random.sample(range(3), self.random.choice((1, 1, 1, 2)))
        alone = self.random.random() < 0.1
        memory = self.random.choice((10, 20, 30 + self.pods))
        return [share(number, memory, exclusive=alone) for number in cards]

    def _of(self, uid: str) -> list[PlacedContainer]:
        return [placement for placement in self.placed.containers() if placement.uid == uid]

    def _end(self, uid: str) -> None:
        self.kubelet.end(uid)
        self.admitted.discard(uid)
        self.placed.replace(
            *(placement for placement in self.placed.containers() if placement.uid != uid)
        )


@asynccontextmanager
async def living(seed: int, directory: Path) -> AsyncIterator[Life]:
    """Run a node for a block."""
    life = Life(seed, directory)
    await life.kubelet.start()
    await life.start_plugin()
    try:
        yield life
    finally:
        await life.stop_plugin()
        await life.kubelet.stop()


async def run(seed: int, directory: Path) -> Life:
    """Let one seed happen."""
    async with living(seed, directory) as life:
        for _ in range(STEPS):
            await life.step()
    return life


@pytest.mark.parametrize("seed", range(12))
async def test_each_started_container_has_its_own_cards_and_limits(
    seed: int, tmp_path: Path
) -> None:
    await run(seed, tmp_path)


async def test_the_campaign_starts_many_and_refuses_some(tmp_path: Path) -> None:
    lives = []
    for seed in (0, 6, 12, 18):
        (tmp_path / str(seed)).mkdir()
        lives.append(await run(seed, tmp_path / str(seed)))
    assert sum(life.started for life in lives) >= 20
    assert sum(life.refused for life in lives) >= 1


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 400))
async def test_each_started_container_has_its_own_cards_in_many_lives(
    seed: int, tmp_path: Path
) -> None:
    await run(seed, tmp_path)
