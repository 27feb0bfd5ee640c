"""Request credentials: the headers that authenticate requests, renewed while a command runs.

`gpuledger top` runs for hours, and tokens expire meanwhile. As in client-go, a token file is read
again each minute, and a plugin runs again when its credential expires; both also after a 401.
"""

import ssl
import time
from datetime import UTC, datetime
from typing import Final, Protocol

from gpuledger.cli.exit_codes import CommandError
from gpuledger.reading.access_files import identify, token_in, usable_token
from gpuledger.reading.exec_credential import PluginCredential, credential_of
from gpuledger.reading.kubeconfig_files import ClusterAccess, ExecPlugin

Headers = list[tuple[str, str]]

TOKEN_FILE_SECONDS: Final = 60.0
"""Time for which a token of a file is used; the kubelet replaces tokens at 80 % of their life."""

PLUGIN_PAUSE_SECONDS: Final = 60.0
"""Least time between two runs of a plugin after a refusal or a failure. Else a plugin that opens a
browser would open one at each refresh."""


class RequestCredentials(Protocol):
    """The credentials of a connection."""

    @property
    def by_certificate(self) -> bool:
        """Whether a certificate may change, so that each request needs a connection of its own."""
        return False

    async def headers(self) -> Headers:
        """Return the headers of a request. Raises CommandError without usable credentials."""
        ...

    async def renew(self) -> bool:
        """Renew credentials that were refused, and return whether they are others now."""
        ...


class FixedCredentials(RequestCredentials):
    """Headers that never change."""

    def __init__(self, headers: Headers) -> None:
        self._headers = headers

    async def headers(self) -> Headers:
        """Return the headers."""
        return self._headers

    async def renew(self) -> bool:
        """Return False, because there are no others."""
        return False


class TokenFileCredentials(RequestCredentials):
    """The token in a file that another program replaces."""

    def __init__(self, field: str, path: str) -> None:
        """Read the file that a field names. Raises CommandError."""
        self._field, self._path = field, path
        self._token = token_in(field, path)
        self._read_at = time.monotonic()

    async def headers(self) -> Headers:
        """Return the header of the token."""
        if time.monotonic() - self._read_at >= TOKEN_FILE_SECONDS:
            self._read()
        return bearer(self._token)

    async def renew(self) -> bool:
        """Read the file again."""
        before = self._token
        self._read()
        return self._token != before

    def _read(self) -> None:
        self._read_at = time.monotonic()
        try:
            self._token = token_in(self._field, self._path)
        except CommandError:
            # The file may be absent while it is replaced. The old token is valid, or refused.
            return


class PluginCredentials(RequestCredentials):
    """The token or the certificate of a credential plugin."""

    def __init__(self, plugin: ExecPlugin, cluster: ClusterAccess, *, tls: ssl.SSLContext) -> None:
        """Prepare; certificates are loaded into `tls`. `started` runs the plugin."""
        self._plugin, self._cluster, self._tls = plugin, cluster, tls
        self._not_before = 0.0
        self._last = PluginCredential()

    @classmethod
    async def started(
        cls, plugin: ExecPlugin, cluster: ClusterAccess, tls: ssl.SSLContext
    ) -> "PluginCredentials":
        """Run the plugin, which may ask on the terminal. Raises CommandError."""
        credentials = cls(plugin, cluster, tls=tls)
        credentials._use(await credential_of(plugin, cluster))
        return credentials

    @property
    def by_certificate(self) -> bool:
        """Whether the last credential had a certificate."""
        return bool(self._last.client_certificate_data)

    async def headers(self) -> Headers:
        """Return the header of the token, none for a certificate. Raises CommandError."""
        if self._is_expired() and self._may_run():
            await self._run()
            if self._is_expired():
                # The clock of this machine is wrong: the plugin would run before each request.
                self._pause()
        return bearer(self._last.token) if self._last.token else []

    async def renew(self) -> bool:
        """Run the plugin again, unless it has run a short time ago."""
        if not self._may_run():
            return False
        before = self._last
        try:
            await self._run()
        except CommandError:
            # The refusal is reported, and its remedy is to log in again.
            return False
        self._pause()
        return self._last != before

    def _is_expired(self) -> bool:
        expires = self._last.expiration_timestamp
        return expires is not None and datetime.now(UTC) >= expires

    def _may_run(self) -> bool:
        return time.monotonic() >= self._not_before

    def _pause(self) -> None:
        self._not_before = time.monotonic() + PLUGIN_PAUSE_SECONDS

    async def _run(self) -> None:
        try:
            self._use(await credential_of(self._plugin, self._cluster, prompts=False))
        except CommandError:
            self._pause()
            raise

    def _use(self, credential: PluginCredential) -> None:
        if credential.token:
            usable_token("token of the credential plugin", credential.token)
        if credential.client_certificate_data:
            pair = (credential.client_certificate_data, credential.client_key_data)
            identify(self._tls, *(part.encode() for part in pair))
        self._last = credential


def bearer(token: str) -> Headers:
    """Return the header of a token."""
    return [("Authorization", f"Bearer {token}")]
