"""The key that signs stamps: made once, and never a weak one."""

from pathlib import Path

import pytest

from gpuledger.exits import Stop
from gpuledger.wiring import stamp_key
from ledger.runtime.settings import Settings


def test_a_key_is_made_once_and_kept(tmp_path: Path) -> None:
    settings = Settings(store_dir=str(tmp_path))
    key = stamp_key(settings)
    assert len(key) >= 32
    assert stamp_key(settings) == key


@pytest.mark.parametrize("left", [b"", b"short", b" " * 40])
def test_a_file_with_too_little_for_a_key_is_named_with_a_remedy(
    tmp_path: Path, left: bytes
) -> None:
    (tmp_path / "stamp.key").write_bytes(left)
    with pytest.raises(Stop, match=r"stamp\.key: \d+ bytes are too few.*delete the file"):
        stamp_key(Settings(store_dir=str(tmp_path)))
    given = tmp_path / "given.key"
    given.write_bytes(left)
    with pytest.raises(Stop, match=r"given\.key: \d+ bytes are too few.*openssl"):
        stamp_key(Settings(store_dir=str(tmp_path), stamp_key_file=str(given)))


def test_a_key_file_without_end_is_not_read_to_its_end(tmp_path: Path) -> None:
    assert stamp_key(Settings(store_dir=str(tmp_path), stamp_key_file="/dev/urandom"))
