"""Commands whose standard output cannot be written: a reader that ended, and a full disk."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.harness.command_line import environment

from gpuledger.cli.exit_codes import Exit
from ledger.runtime.tls import server_certificate
from ledger.runtime.tls.certificate_authority import new_authority

SECONDS = 60.0


def printing_to(output: int, *arguments: str) -> tuple[int, str]:
    """Run a command with an open file as standard output; return its status and its errors.

    The file is closed. The output is buffered, as it is for users: an unbuffered one has nothing
    left that the interpreter would flush when it ends.
    """
    variables = environment()
    variables.pop("PYTHONUNBUFFERED", None)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "gpuledger", *arguments],
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
            env=variables,
            timeout=SECONDS,
            check=False,
        )
    finally:
        os.close(output)
    return done.returncode, done.stderr


def without_reader() -> int:
    """Return a pipe that no process reads."""
    reading, writing = os.pipe()
    os.close(reading)
    return writing


@pytest.fixture
def authority_file(tmp_path: Path) -> Path:
    """The certificate of a CA."""
    path = tmp_path / "ca.crt"
    path.write_bytes(new_authority(server_certificate.utc_now()).certificate)
    return path


@pytest.mark.parametrize("line", ["version", "serve --no-kubernetes --print-config"])
def test_a_command_ends_without_a_word_when_its_reader_ended(line: str) -> None:
    """As in `gpuledger history | head`; the interpreter would report its last flush with 120."""
    assert printing_to(without_reader(), *line.split()) == (Exit.FAILED, "")


def test_a_manifest_ends_without_a_word_when_its_reader_ended(authority_file: Path) -> None:
    line = ("webhook", "print", "--url", "https://host", "--ca", str(authority_file))
    assert printing_to(without_reader(), *line) == (Exit.FAILED, "")


def test_a_full_disk_is_an_error_with_its_name() -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    status, message = printing_to(full, "version")
    assert status == Exit.FAILED
    assert message == "gpuledger: standard output cannot be written: No space left on device\n"
