"""NATS credentials: their files, and the rule that with TLS configured nothing is sent without it.

Files are read each time that a connection is made. A login is one line of one file, because two
files that are replaced one after the other would give a new name with an old password.
`nats_connection` checks the files regularly and replaces its client after a change.
"""

import ssl
from pathlib import Path
from typing import Final

import msgspec
import nats.errors
import nkeys  # type: ignore[import-untyped]
from nats.aio.client import Client

from ledger.log.jetstream.nats_errors import plainly

LOGIN_BYTES_MAX: Final = 4096
FILE_BYTES_MAX: Final = 65_536

_TOKEN: Final = b"BEGIN NATS USER JWT"
_SEED: Final = b"BEGIN USER NKEY SEED"

Marks = tuple[tuple[int, int, int] | None, ...]
"""A value that changes when one of some files is replaced."""


class CredentialsError(Exception):
    """A file with credentials cannot be used; the message names it and the remedy."""


class Access(msgspec.Struct, frozen=True):
    """Addresses and credentials of the servers: a password, or one of the files instead.

    `login` is the name of a file with USER:PASSWORD, `credentials` and `nkey_seed` are files of
    NATS and need the package `nkeys`; `ca` is a file with the CA of the servers. Files are read
    again when they change. With `ca`, or an address tls://, nothing is sent without TLS.
    """

    servers: tuple[str, ...]
    user: str = ""
    password: str = ""
    credentials: str = ""
    nkey_seed: str = ""
    login: str = ""
    ca: str = ""
    inbox_prefix: str = "_INBOX"

    @property
    def files(self) -> tuple[str, ...]:
        """The files with credentials and with the trusted CA."""
        named = (self.login, self.credentials, self.nkey_seed, self.ca)
        return tuple(path for path in named if path)

    @property
    def secured(self) -> bool:
        """Whether credentials are sent only to a server with TLS."""
        return bool(self.ca) or any(server.startswith("tls://") for server in self.servers)


class Login(msgspec.Struct, frozen=True):
    """A user of the NATS servers."""

    user: str
    password: str


class SecureClient(Client):
    """A client that logs in over TLS only.

    The library sends user and password to a server without TLS, even for an address tls://.
    """

    def _connect_command(self) -> bytes:
        writer = getattr(self._transport, "_io_writer", None)
        if writer is None or writer.get_extra_info("ssl_object") is None:
            raise nats.errors.Error(
                "the server offers no TLS, so no login was sent: enable TLS on it, or use a nats://"
                " address without nats_ca"
            )
        return super()._connect_command()


def read_login(path: str) -> Login:
    """Read USER:PASSWORD from the only line of a file. Raises CredentialsError."""
    try:
        with Path(path).open("rb") as file:
            text = file.read(LOGIN_BYTES_MAX).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CredentialsError(
            f"{path}: cannot be read ({_reason(error)}); check the file"
        ) from error
    user, _, password = text.partition(":")
    if not user or not password or "\n" in text:
        raise CredentialsError(f"{path}: is not one line USER:PASSWORD; write it so")
    return Login(user, password)


def check_keys(access: Access) -> None:
    """Check the files of NATS before its library reads them. Raises CredentialsError.

    On a file without a token the library loops for ever, and on one without a seed it raises errors
    of many kinds.
    """
    if access.nkey_seed:
        _check_seed(access.nkey_seed, _content(access.nkey_seed))
    if access.credentials:
        text = _content(access.credentials)
        if _TOKEN not in text:
            raise CredentialsError(f"{access.credentials}: holds no token of a user; write one")
        _check_seed(access.credentials, text.partition(_SEED)[2].partition(b"\n")[2])


def _content(path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            return file.read(FILE_BYTES_MAX)
    except OSError as error:
        raise CredentialsError(
            f"{path}: cannot be read ({_reason(error)}); check the file"
        ) from error


def _reason(error: Exception) -> str:
    """Return why a file cannot be used, without its name."""
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) and error.strerror:
        return error.strerror
    return "it holds no certificate in PEM" if isinstance(error, ssl.SSLError) else plainly(error)


def _check_seed(path: str, text: bytes) -> None:
    """Check that a text begins with a seed in a line of its own."""
    try:
        nkeys.from_seed(bytearray(text.strip().partition(b"\n")[0].strip())).wipe()
    except (nkeys.NkeysError, ValueError) as error:
        raise CredentialsError(f"{path}: holds no seed of a user ({error}); write one") from error


def trusting(authority: str) -> ssl.SSLContext:
    """Return a context that trusts the CA in a PEM file. Raises CredentialsError."""
    try:
        return ssl.create_default_context(cafile=authority)
    except (OSError, ssl.SSLError) as error:
        raise CredentialsError(
            f"{authority}: cannot be used as the CA of the NATS servers ({_reason(error)});"
            " check the file"
        ) from error


def marks(paths: tuple[str, ...]) -> Marks:
    """Return the present marks of files; a link is followed, as a mounted Secret is replaced by
    one."""
    return tuple(_mark(Path(path)) for path in paths)


def _mark(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
