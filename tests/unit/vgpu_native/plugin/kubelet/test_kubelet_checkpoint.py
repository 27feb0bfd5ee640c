"""The reader of the kubelet's checkpoint checks its content, which becomes file names."""

import base64
import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgpu_native.plugin.allocation import container_environment
from vgpu_native.plugin.kubelet import kubelet_checkpoint
from vgpu_native.plugin.kubelet.generated.deviceplugin_pb2 import ContainerAllocateResponse
from vgpu_native.plugin.kubelet.kubelet_checkpoint import BadCheckpoint, CheckpointEntry
from vgpu_native.plugin.plugin_settings import PluginSettings

TOKEN = "a" + "0123456789abcdef01234567"
RESOURCE = "nvidia.com/gpu"


def written(path: Path, answer: ContainerAllocateResponse, ids: Any, **told: Any) -> Path:
    """Write a checkpoint with one container."""
    entry = {
        "PodUID": "uid",
        "ContainerName": "main",
        "ResourceName": RESOURCE,
        "DeviceIDs": ids,
        "AllocResp": base64.b64encode(answer.SerializeToString()).decode(),
    }
    data = {"PodDeviceEntries": [{**entry, **told}], "RegisteredDevices": {RESOURCE: ["x"]}}
    path.write_text(json.dumps({"Data": data, "Checksum": 1, "BootID": "later releases"}))
    return path


def plain(token: str = TOKEN) -> ContainerAllocateResponse:
    """Return the response of a container with limits on two cards."""
    settings = PluginSettings()
    variables = container_environment.environment(("A", "B"), (), settings, limited=True)
    mounted = container_environment.mounts(
        Path("/state/x/limits"), Path("/state/x/region"), settings, limited=True
    )
    return container_environment.plain_response(token, variables, mounted)


@pytest.mark.parametrize(
    "ids", [{"-1": ["A-0", "B-0"]}, {"0": ["A-0"], "1": ["B-0"]}, ["A-0", "B-0"]]
)
def test_an_entry_has_the_container_its_devices_and_its_response(tmp_path: Path, ids: Any) -> None:
    path = written(tmp_path / "checkpoint", plain(), ids)
    (entry,) = kubelet_checkpoint.read(path, RESOURCE)
    assert entry == CheckpointEntry(
        "uid", "main", frozenset({"A-0", "B-0"}), TOKEN, ("A", "B"), limited=True, cdi=False
    )
    assert kubelet_checkpoint.read(path, "other.com/gpu") == ()


def test_an_entry_reports_a_response_with_a_cdi_device(tmp_path: Path) -> None:
    path = written(
        tmp_path / "checkpoint", container_environment.cdi_response(TOKEN), {"-1": ["A-0"]}
    )
    (entry,) = kubelet_checkpoint.read(path, RESOURCE)
    assert (entry.cards, entry.limited, entry.cdi) == ((), False, True)


@pytest.mark.parametrize(
    "token", ["", "../../etc", "a/b", TOKEN + "0", TOKEN.upper(), TOKEN + "\n"]
)
def test_an_entry_has_no_token_when_the_mark_is_foreign(tmp_path: Path, token: str) -> None:
    path = written(tmp_path / "checkpoint", plain(token), {"-1": ["A-0"]})
    assert kubelet_checkpoint.read(path, RESOURCE)[0].token == ""


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b'{"Data":{"Other":' + b"[" * 100_000,
        b'{"Data":{"PodDeviceEntries":[{"PodUID":3}]}}',
        b'{"Data":{"PodDeviceEntries":[{"PodUID":"u","ResourceName":"nvidia.com/gpu",'
        b'"AllocResp":"/////w=="}]}}',
    ],
)
def test_a_checkpoint_is_rejected_when_no_kubelet_could_write_it(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(content)
    with pytest.raises(BadCheckpoint, match=str(path)):
        kubelet_checkpoint.read(path, RESOURCE)


def test_a_missing_file_a_directory_and_an_endless_file_are_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BadCheckpoint, match="No such file"):
        kubelet_checkpoint.read(tmp_path / "none", RESOURCE)
    with pytest.raises(BadCheckpoint, match="directory"):
        kubelet_checkpoint.read(tmp_path, RESOURCE)
    monkeypatch.setattr(kubelet_checkpoint, "BYTES_MAX", 100)
    with pytest.raises(BadCheckpoint, match="more than 100 bytes"):
        kubelet_checkpoint.read(Path("/dev/zero"), RESOURCE)


@given(content=st.binary(max_size=200), place=st.integers(0, 400), cut=st.integers(0, 500))
def test_changed_bytes_are_read_or_rejected(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, place: int, cut: int
) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "checkpoint"
    good = written(path, plain(), {"-1": ["A-0"]}).read_bytes()
    path.write_bytes(good[:place] + content + good[place + cut :])
    with contextlib.suppress(BadCheckpoint):
        for entry in kubelet_checkpoint.read(path, RESOURCE):
            assert "/" not in entry.token
