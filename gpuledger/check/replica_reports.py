"""Replica reports: the readiness and the metrics of each replica, asked over HTTPS.

The registered CA must have issued the certificate of a replica, so a token is sent to no other
program. Readiness has one line per check, as `ledger.runtime.http.health` writes it.
"""

import asyncio
import re
import ssl
import time
from collections.abc import Sequence
from contextlib import suppress
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Final

import aiohttp
import msgspec

from ledger.log.bounded_read import AnswerTooLong, read_whole

REPLICA_SECONDS: Final = 10.0
"""Deadline of one answer of a replica."""

REPLICAS_MAX: Final = 64
"""Replicas that are asked."""

ANSWER_BYTES_MAX: Final = 16 * 1024**2

_READINESS: Final = "/readyz?verbose"
_METRICS: Final = "/metrics"
_LINE: Final = re.compile(r"\[([+-])\]([a-z-]+) (?:ok|failed)(?:: (.*))?")
_SAMPLE: Final = re.compile(r"gpuledger_([a-z_]+)(?:\{(.*)\})? (\S+)")
_VERSION: Final = re.compile(r'version="([^"]*)"')
_EXPIRED: Final = 10
"""OpenSSL's code of a certificate that has expired (X509_V_ERR_CERT_HAS_EXPIRED)."""


class ReplicaProblem(StrEnum):
    """Why a replica gave no report."""

    UNREACHABLE = "unreachable"
    UNTRUSTED = "untrusted"
    """The registered CA has not issued its certificate, or not for this name."""
    EXPIRED = "expired"
    """Its certificate has expired."""
    REFUSED = "refused"
    """It does not accept the token."""


class ReplicaAddress(msgspec.Struct, frozen=True):
    """A replica: its name for people, its base URL, and the name in its certificate."""

    name: str
    url: str
    server_name: str = ""


class ReplicaReport(msgspec.Struct, frozen=True):
    """The answers of one replica.

    `checks` has the result and reason of each check of readiness, `metrics` the values without
    labels by name without prefix. `date` is the replica's time at `asked`, the time of this
    machine; both in seconds of Unix time, `date` in whole seconds.
    """

    name: str
    problem: ReplicaProblem | None = None
    reason: str = ""
    checks: dict[str, tuple[bool, str]] = {}
    metrics: dict[str, float] = {}
    version: str = ""
    date: float | None = None
    asked: float = 0.0

    def metric(self, name: str) -> float:
        """Return a metric, 0 if the replica does not have it."""
        return self.metrics.get(name, 0.0)

    def reason_of(self, check: str) -> str:
        """Return the reason of a check, "" without one."""
        return self.checks.get(check, (True, ""))[1]

    def fails(self, check: str) -> bool:
        """Return whether a check of readiness fails."""
        return not self.checks.get(check, (True, ""))[0]


class _Refused(Exception):
    """A replica answered with a status that has no report."""


async def ask_replicas(
    addresses: Sequence[ReplicaAddress], authority: bytes, token: str
) -> list[ReplicaReport]:
    """Ask all replicas at once; the registered CA is `authority`, PEM.

    Without a CA, the system's trust store decides, and a token is not sent to those that it trusts.
    """
    if token and not authority:
        reason = "there is no caBundle, so no replica is asked with a token"
        return [
            ReplicaReport(address.name, ReplicaProblem.UNTRUSTED, reason) for address in addresses
        ]
    try:
        tls = ssl.create_default_context(cadata=authority.decode("ascii") or None)
    except (ssl.SSLError, UnicodeDecodeError) as error:
        reason = f"the caBundle is invalid: {error}"
        return [
            ReplicaReport(address.name, ReplicaProblem.UNTRUSTED, reason) for address in addresses
        ]
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=tls),
        timeout=aiohttp.ClientTimeout(total=REPLICA_SECONDS),
        headers={"Authorization": f"Bearer {token}"} if token else {},
    ) as session:
        asked = (_asked(session, address) for address in addresses[:REPLICAS_MAX])
        reports = list(await asyncio.gather(*asked))
    reason = f"more than {REPLICAS_MAX} replicas are not asked"
    return reports + [
        ReplicaReport(address.name, ReplicaProblem.UNREACHABLE, reason)
        for address in addresses[REPLICAS_MAX:]
    ]


async def _asked(session: aiohttp.ClientSession, address: ReplicaAddress) -> ReplicaReport:
    try:
        readiness, date, asked = await _get(session, address, _READINESS)
        metrics, _, _ = await _get(session, address, _METRICS)
    except aiohttp.ClientConnectorCertificateError as error:
        return _untrusted(address, error.certificate_error)
    except aiohttp.ClientConnectorSSLError as error:
        return ReplicaReport(address.name, ReplicaProblem.UNTRUSTED, str(error))
    except _Refused as error:
        return ReplicaReport(address.name, ReplicaProblem.REFUSED, str(error))
    except (aiohttp.ClientError, TimeoutError, OSError, AnswerTooLong) as error:
        reason = str(error) or "no answer in time"
        return ReplicaReport(address.name, ReplicaProblem.UNREACHABLE, reason)
    values, version = samples(metrics)
    return ReplicaReport(
        address.name,
        checks=checks(readiness),
        metrics=values,
        version=version,
        date=date,
        asked=asked,
    )


def _untrusted(address: ReplicaAddress, error: Exception) -> ReplicaReport:
    code = getattr(error, "verify_code", 0)
    problem = ReplicaProblem.EXPIRED if code == _EXPIRED else ReplicaProblem.UNTRUSTED
    return ReplicaReport(address.name, problem, getattr(error, "verify_message", str(error)))


async def _get(
    session: aiohttp.ClientSession, address: ReplicaAddress, path: str
) -> tuple[str, float | None, float]:
    """Return an answer, the time in its head, and the time of this machine halfway.

    Readiness answers 503 where a check fails. Raises `_Refused` for other statuses.
    """
    before = time.time()
    async with session.get(
        address.url + path, server_hostname=address.server_name or None, allow_redirects=False
    ) as response:
        text = (await read_whole(response.content, ANSWER_BYTES_MAX)).decode(errors="replace")
        if response.status not in (200, 503):
            raise _Refused(f"{address.url}{path} answers {response.status}: {text[:300]}")
        return text, _time_of(response.headers.get("date", "")), (before + time.time()) / 2


def _time_of(date: str) -> float | None:
    try:
        return parsedate_to_datetime(date).timestamp()
    except ValueError:
        return None


def checks(text: str) -> dict[str, tuple[bool, str]]:
    """Return the checks in the text of readiness."""
    return {
        match[2]: (match[1] == "+", match[3] or "")
        for match in map(_LINE.fullmatch, text.splitlines())
        if match is not None
    }


def samples(text: str) -> tuple[dict[str, float], str]:
    """Return the metrics without labels, and the version. Malformed samples are left out."""
    values: dict[str, float] = {}
    version = ""
    for match in map(_SAMPLE.fullmatch, text.splitlines()):
        if match is None:
            continue
        name, labels, value = match.groups()
        if name == "build_info":
            found_version = _VERSION.search(labels or "")
            version = found_version[1] if found_version else ""
        elif labels is None:
            with suppress(ValueError):
                values[name] = float(value)
    return values, version
