"""Expected errors end in words: no numbers of the operating system, and the remedy that helps."""

import errno
import os
from pathlib import Path

import pytest

from gpuledger.cli.exit_codes import CommandError, Exit
from gpuledger.cli.expected_errors import command_error_for
from ledger.log.jetstream.nats_errors import Unauthorized, Untrusted, plainly
from ledger.log.log_port import Unreachable


def ended(error: Exception) -> CommandError:
    stop = command_error_for(error)
    assert stop is not None
    return stop


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOSPC, "make room"),
        (errno.EACCES, "check its owner"),
        (errno.EROFS, "a writable place"),
        (errno.ENOTDIR, "a part of it is a file"),
    ],
)
def test_an_error_of_the_operating_system_names_the_file_and_the_remedy(
    number: int, remedy: str
) -> None:
    stop = ended(OSError(number, os.strerror(number), "/some/file"))
    assert (stop.status, "Errno" in str(stop)) == (Exit.FAILED, False)
    assert str(stop).startswith(f"/some/file: {os.strerror(number)}; ")
    assert remedy in str(stop)


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (Unreachable("NATS at x: no connection"), "check the address"),
        (Unauthorized("NATS at x: no connection"), "check the credentials"),
        (Untrusted("NATS at x: no connection"), "check the CA"),
    ],
)
def test_connection_error_has_a_remedy(error: Exception, remedy: str) -> None:
    stop = ended(error)
    assert stop.status is Exit.UNREACHABLE
    assert remedy in str(stop)
    assert ("check the address" in str(stop)) is (type(error) is Unreachable)


def test_numbers_of_errors_and_lines_of_libraries_are_left_out() -> None:
    refused = OSError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 4222)")
    assert plainly(refused) == "127.0.0.1:4222: Connection refused"
    inner = "x: no connection; [Errno -2] Name or service not known (_ssl.c:997)"
    assert "no connection; Name or service not known;" in str(ended(Unreachable(inner)))


def test_error_without_a_message_has_at_least_its_kind() -> None:
    assert plainly(TimeoutError()) == "TimeoutError"
    assert "too long" in str(ended(TimeoutError()))


def test_a_real_error_of_a_path_is_put_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="Not a directory") as met:
        (tmp_path / "file" / "below").read_bytes()
    assert str(ended(met.value)).startswith(f"{tmp_path}/file/below: Not a directory; ")
