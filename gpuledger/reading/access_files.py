"""Access files: tokens, certificates and keys in files, and the TLS contexts made of them."""

import ssl
import tempfile
from pathlib import Path
from typing import Final

from gpuledger.cli.exit_codes import CommandError, Exit

BYTES_MAX: Final = 1024 * 1024
"""Largest file that is read."""


def content_of(field: str, path: str) -> bytes:
    """Return the content of the file that a field names. Raises CommandError."""
    try:
        with Path(path).expanduser().open("rb") as opened:
            content = opened.read(BYTES_MAX + 1)
    except OSError as error:
        raise CommandError(
            Exit.USAGE, f"{field} = {path}: cannot be read ({error.strerror}); check the path"
        ) from error
    if len(content) > BYTES_MAX:
        raise CommandError(
            Exit.USAGE, f"{field} = {path}: has more than {BYTES_MAX} bytes; name another file"
        )
    return content


def token_in(field: str, path: str) -> str:
    """Return the token in a file, without blanks around it. Raises CommandError."""
    content = content_of(field, path).strip()
    try:
        return usable_token(f"{field} = {path}", content.decode("ascii"))
    except UnicodeDecodeError as error:
        raise CommandError(Exit.USAGE, f"{field} = {path}: has no token") from error


def usable_token(field: str, token: str) -> str:
    """Return a token that can be sent in a header. Raises CommandError without showing it."""
    if not token or not token.isprintable() or any(part.isspace() for part in token):
        raise CommandError(Exit.USAGE, f"{field}: has no token, or more than one line; write one")
    return token


def trusting(field: str, authority: bytes) -> ssl.SSLContext:
    """Return a TLS context that trusts a CA in PEM, or without one those of the system.

    Raises CommandError.
    """
    try:
        return ssl.create_default_context(cadata=authority.decode("ascii") if authority else None)
    except (ssl.SSLError, ValueError) as error:
        raise CommandError(
            Exit.USAGE, f"{field}: is not a certificate in PEM ({error}); name another file"
        ) from error


def identify(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Load a client certificate and its key. Raises CommandError.

    The module ssl reads files only, so both are in a folder of this user for a moment.
    """
    with tempfile.TemporaryDirectory(prefix="gpuledger-") as folder:
        paths = (Path(folder, "certificate.pem"), Path(folder, "key.pem"))
        for path, content in zip(paths, (certificate, key), strict=True):
            path.touch(mode=0o600)
            path.write_bytes(content)
        try:
            # Without a password the library would ask for one on the terminal.
            context.load_cert_chain(*paths, password="")
        except (ssl.SSLError, OSError, ValueError) as error:
            raise CommandError(
                Exit.USAGE,
                f"the client certificate and its key cannot be used together ({error}): both are"
                " PEM, and the key has no password",
            ) from error
