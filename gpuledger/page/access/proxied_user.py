"""Proxied user: the user and groups that an authenticating proxy names in headers.

The headers are believed only over a connection with the verified certificate of that proxy. Names
of Kubernetes' own users are refused, because the proxy authenticates people.
"""

from typing import Final

import msgspec
from starlette.datastructures import Headers

from gpuledger.page.page_errors import PageError
from ledger.kube.client.access_review import Subject

NAME_CHARACTERS_MAX: Final = 253
GROUPS_MAX: Final = 256

RESERVED: Final = "system:"
"""Prefix of the names that Kubernetes gives itself."""

AUTHENTICATED: Final = "system:authenticated"


class ProxySettings(msgspec.Struct, frozen=True):
    """The subjects (RFC 4514) of the proxies' certificates, and the names of their headers.

    Without a `groups_header`, a user has no groups.
    """

    subjects: frozenset[str] = frozenset()
    user_header: str = ""
    groups_header: str = ""


def proxied_user(headers: Headers, settings: ProxySettings) -> Subject:
    """Return the user that a proxy names. Raises PageError 401 without one clear name, and 403 for
    a name that the proxy may not give.
    """
    users = headers.getlist(settings.user_header)
    if len(users) != 1 or not users[0].strip():
        raise PageError(
            401,
            f"The proxy sent {len(users)} values of the header {settings.user_header}.",
            remedy="Sign in at the proxy. It has to send exactly one user name.",
        )
    user = _checked(users[0].strip(), settings.user_header)
    if user.startswith(RESERVED):
        raise PageError(
            403,
            f"The proxy may not name the user {user}.",
            remedy=f"Names that begin with {RESERVED} are those of Kubernetes.",
        )
    return Subject(user, groups=(*_groups(headers, settings.groups_header), AUTHENTICATED))


def _groups(headers: Headers, header: str) -> tuple[str, ...]:
    given = ",".join(headers.getlist(header)).split(",") if header else []
    groups = dict.fromkeys(name.strip() for name in given if name.strip())
    if len(groups) > GROUPS_MAX:
        raise PageError(
            403,
            f"The header {header} has {len(groups)} groups, the most is {GROUPS_MAX}.",
            remedy="Let the proxy send only the groups that the roles name.",
        )
    return tuple(_checked(name, header) for name in groups if not name.startswith(RESERVED))


def _checked(name: str, header: str) -> str:
    if len(name) <= NAME_CHARACTERS_MAX and name.isprintable():
        return name
    raise PageError(
        403,
        f"The header {header} has a name that is longer than {NAME_CHARACTERS_MAX} characters or"
        " not printable.",
        remedy="Let the proxy send another name.",
    )
