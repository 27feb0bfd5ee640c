"""Front proxy user: the user that the API server's proxy names in the headers of a request."""

from collections.abc import Sequence
from urllib.parse import unquote

from gpuledger.server.aggregated.front_proxy_trust import FrontProxyTrust
from ledger.kube.client.access_review import Subject

RawHeaders = Sequence[tuple[bytes, bytes]]


class UnclearUser(Exception):
    """The headers name no user, or more than one."""


def user_of(headers: RawHeaders, trust: FrontProxyTrust) -> Subject:
    """Return the user in the headers of the trusted proxy, names in lower case.

    Raises UnclearUser. The headers are those of `FrontProxyTrust`; a key of an extra is
    percent-decoded and in lower case, as the API server reads it. Other headers may have any bytes,
    because the proxy passes those of the client on.
    """
    exact = {*trust.user_headers, *trust.uid_headers, *trust.group_headers}
    lowered = ((name.decode("latin-1").lower(), value) for name, value in headers)
    named = [
        (name, _text(name, value))
        for name, value in lowered
        if name in exact or name.startswith(trust.extra_prefixes)
    ]
    return Subject(
        _only(named, trust.user_headers, required=True),
        _only(named, trust.uid_headers),
        tuple(value for name, value in named if name in trust.group_headers and value),
        _extra(named, trust.extra_prefixes),
    )


def _only(named: list[tuple[str, str]], headers: Sequence[str], *, required: bool = False) -> str:
    for header in headers:
        values = [value for name, value in named if name == header]
        if len(values) > 1:
            raise UnclearUser(f"{header} is given {len(values)} times")
        if values and values[0]:
            return values[0]
    if required:
        raise UnclearUser(f"{' and '.join(headers)} is missing")
    return ""


def _extra(named: list[tuple[str, str]], prefixes: Sequence[str]) -> dict[str, list[str]]:
    extra: dict[str, list[str]] = {}
    for prefix in prefixes:
        for name, value in named:
            if name.startswith(prefix):
                extra.setdefault(unquote(name[len(prefix) :]).lower(), []).append(value)
    return extra


def _text(name: str, value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise UnclearUser(f"{name} is not UTF-8") from error
