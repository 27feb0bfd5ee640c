"""The device plugin registers, and is asked again, after restarts of it and of the kubelet."""

import asyncio
import socket
from pathlib import Path
from typing import Any

import grpc
import pytest
from support.fakes.kubelet import RESOURCE, Kubelet, kubelet_in, started
from support.harness.device_plugin import (
    FakePlacements,
    card,
    node_in,
    node_with_plugin,
    running,
    settings_in,
)
from support.kubelets.recording_plugin import plugin_at

from vgpu_native.plugin.plugin_settings import PluginSettings
from vgpu_native.plugin.server import kubelet_registration
from vgpu_native.plugin.server import plugin_server as whole
from vgpu_native.plugin.server.plugin_server import DevicePluginServer

ADMISSION_SECONDS = 0.5


async def test_a_socket_that_a_killed_plugin_left_is_replaced(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    settings.plugins_dir.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(settings.socket))
    kubelet = Kubelet(tmp_path / "kubelet")
    kubelet.removes_sockets = False
    async with started(kubelet):
        assert settings.socket.is_socket()
        async with node_with_plugin(kubelet, settings, FakePlacements()) as node:
            assert node.plugin.registered


async def test_a_removed_socket_is_served_again(tmp_path: Path) -> None:
    async with node_in(tmp_path) as node:
        node.settings.socket.unlink()
        await node.kubelet.wait_registered(2)
        await node.kubelet.wait_listed(2)


async def test_lists_do_not_hold_up_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole, "STOP_SECONDS", 60)
    async with asyncio.timeout(20):
        async with node_in(tmp_path) as node:
            assert node.plugin.registered
        assert not node.plugin.registered


def test_a_file_that_is_not_a_socket_is_not_a_kubelet(tmp_path: Path) -> None:
    assert kubelet_registration.identity(tmp_path) is None
    assert kubelet_registration.identity(tmp_path / "none") is None


async def test_the_plugin_registers_with_another_kubelet_while_its_socket_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubelet_registration, "UNHEARD_SECONDS", 1_000)
    async with node_in(tmp_path) as node:
        node.kubelet.removes_sockets = False
        before = node.settings.socket.stat().st_ino
        await node.kubelet.restart()
        await node.kubelet.wait_listed()
        assert len(node.kubelet.registrations) == 1
        assert node.settings.socket.stat().st_ino == before


async def test_a_kubelet_that_no_longer_listens_is_registered_with_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubelet_registration, "UNHEARD_SECONDS", 0.1)
    async with node_in(tmp_path) as node:
        await node.kubelet.forget_plugin()
        await node.kubelet.wait_registered(2)


async def test_the_plugin_registers_before_a_new_kubelet_admits_pods(tmp_path: Path) -> None:
    """A kubelet of 1.36 admits the pods of its node half a second after it makes its socket."""
    seconds = PluginSettings().look_seconds
    async with node_in(tmp_path, look_seconds=seconds) as node:
        for _ in range(5):
            await node.kubelet.restart()
            async with asyncio.timeout(ADMISSION_SECONDS):
                await node.kubelet.wait_registered(1)
            await node.kubelet.wait_listed()


async def test_a_plugin_registers_again_when_its_predecessor_ends_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kubelet disconnects the present plugin when the stream of an earlier one ends."""
    monkeypatch.setattr(kubelet_registration, "UNHEARD_SECONDS", 0.1)
    async with (
        kubelet_in(tmp_path / "kubelet") as kubelet,
        plugin_at(kubelet.plugins, "earlier.sock", "thing") as earlier,
    ):
        earlier.resource = RESOURCE
        await earlier.register()
        await kubelet.wait_listed()
        async with node_with_plugin(kubelet, settings_in(tmp_path), FakePlacements()):
            assert len(kubelet.registrations) == 2
            await earlier.stop()
            await kubelet.wait_registered(3)
            await kubelet.wait_listed(3)
            assert set(kubelet.health.values()) == {"Healthy"}


async def test_the_plugin_waits_for_a_kubelet_that_comes_later(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    settings.plugins_dir.mkdir(parents=True)
    plugin = DevicePluginServer(settings, FakePlacements())
    plugin.devices.replace([card(0)])
    async with running(plugin):
        await asyncio.sleep(0.2)
        assert not plugin.registered
        async with kubelet_in(tmp_path / "kubelet") as kubelet:
            await kubelet.wait_listed()


async def test_nothing_is_registered_before_it_is_known_which_cards_there_are(
    tmp_path: Path,
) -> None:
    plugin = DevicePluginServer(settings_in(tmp_path), FakePlacements())
    async with kubelet_in(tmp_path / "kubelet") as kubelet, running(plugin):
        await asyncio.sleep(0.3)
        assert not kubelet.registrations, "an empty list takes the cards from pods that run"
        plugin.devices.replace([card(0)])
        await kubelet.wait_listed()
        assert len(kubelet.lists[0].devices) == 4


async def test_a_registration_that_is_refused_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: list[object] = []

    class Strict(Kubelet):
        async def Register(self, request: Any, context: Any) -> Any:  # noqa: N802
            if len(refused) < 2:
                refused.append(request)
                await context.abort(grpc.StatusCode.UNKNOWN, "later")
            return await super().Register(request, context)

    kubelet = Strict(tmp_path / "kubelet")
    async with started(kubelet), node_with_plugin(kubelet, settings_in(tmp_path), FakePlacements()):
        assert len(refused) == 2


async def test_a_failed_registration_names_the_kubelet_and_the_reason(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    with pytest.raises(
        kubelet_registration.NotRegistered, match=r"kubelet at .*kubelet\.sock: UNAVAILABLE"
    ):
        await kubelet_registration.register(settings)
