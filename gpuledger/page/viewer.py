"""Viewer: who looks at a page, and what this user may read."""

from typing import Protocol


class Viewer(Protocol):
    """The user of a request.

    `name` is shown on the page. `cluster` is the only cluster whose data the user may read, "" for
    all clusters. `key` identifies the user in tokens of forms. `signs_out`: the user came by the
    login page.
    """

    @property
    def name(self) -> str:
        """The user's name for people."""
        ...

    @property
    def key(self) -> str:
        """A text that differs between users."""
        ...

    @property
    def cluster(self) -> str:
        """The cluster to which all answers are restricted, "" for none."""
        ...

    @property
    def signs_out(self) -> bool:
        """Whether the page offers to end the session."""
        ...

    async def may(self, verb: str, resource: str, namespace: str = "") -> bool:
        """Return whether the user has a right of `/v1`; namespace "" means all namespaces.

        Raises PageError 401, 429 or 503 when the right cannot be reviewed.
        """
        ...


class LocalViewer:
    """A client on this machine, which may read everything, as in `/v1`."""

    name = "this machine"
    key = "local"
    cluster = ""
    signs_out = False

    async def may(self, verb: str, resource: str, namespace: str = "") -> bool:
        """Return true."""
        return True
