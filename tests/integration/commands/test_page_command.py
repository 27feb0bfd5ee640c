"""`gpuledger page` on a store and on its backup, with no service beside it."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest
from support.harness.command_line import COMMAND, environment, gpuledger

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with one quota."""
    path = tmp_path_factory.mktemp("ledger") / "store"
    made = gpuledger("quota", "set", "-n", "team", "main", "requests.nvidia.com/gpu=2", store=path)
    assert made.status == 0, made.err
    return path


@contextmanager
def serving(*options: str) -> Iterator[str]:
    """Serve the pages on a free port for the block; yield their address."""
    command = [str(COMMAND), "page", "--port=0", *options]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()
            assert process.wait(30) == 0, process.communicate()


def test_the_pages_of_a_store_need_no_service(store: Path) -> None:
    with serving(f"--store-dir={store}") as url:
        assert url.startswith("http://127.0.0.1:")
        shown = httpx2.get(url, timeout=20.0)
        assert "2 GPUs free" in shown.text
        assert httpx2.get(url, headers={"Host": "rebound.example"}, timeout=20.0).status_code == 403


def test_the_pages_of_a_backup_leave_nothing_behind(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = gpuledger("backup", str(tmp_path / "ledger.backup"), store=store)
    assert saved.status == 0, saved.err
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    with serving(f"--backup={tmp_path / 'ledger.backup'}") as url:
        assert "2 GPUs free" in httpx2.get(url, timeout=20.0).text
        assert list(scratch.iterdir())
    assert not list(scratch.iterdir())
