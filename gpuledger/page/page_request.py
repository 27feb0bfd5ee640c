"""Page request: everything that a view gets, with its checks of parameters and rights."""

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlencode

import msgspec
from starlette.datastructures import QueryParams

from gpuledger.page.page_errors import PageError
from gpuledger.page.page_source import PageSource
from gpuledger.page.viewer import Viewer
from projections.api import query_parameters
from projections.api.query_parameters import InvalidParameter
from projections.queries.query_scope import QueryScope
from projections.store.readers import ProjectionView

KEPT: Final = ("at", "refresh")
"""Parameters that links to other pages keep."""

OFF: Final = "off"


def existing_page(number: int, rows: int, rows_max: int) -> int:
    """Return the number of a page of a table, at most the last one.

    A page loads again by itself, and the table may have become shorter meanwhile.
    """
    return min(number, max(1, -(-rows // rows_max)))


class PageRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request of a page.

    `position` is that of `?at=`, or the last of the projection; `time` is the time of its record in
    µs of Unix time, 0 before the first record; `now` is the wall clock, in the same unit. `at` is
    "" for now. `form` has the fields of a POST, and is None for a GET. `form_token` belongs into
    every form; the macro `form_token` writes it.
    """

    path: str
    query: QueryParams
    form: Mapping[str, str] | None
    viewer: Viewer
    source: PageSource
    view: ProjectionView
    position: int
    time: int
    now: int
    form_token: str

    @property
    def at(self) -> str:
        """The parameter `at`, "" for now."""
        return self.query.get("at", "")

    @property
    def is_past(self) -> bool:
        """Whether the page shows an earlier moment."""
        return bool(self.at)

    @property
    def is_paused(self) -> bool:
        """Whether the user paused the refresh."""
        return self.query.get("refresh") == OFF

    @property
    def namespace(self) -> str:
        """The parameter `namespace`, "" for all. Raises InvalidParameter."""
        return self.text("namespace")

    @property
    def cluster(self) -> str:
        """The cluster to read, "" for all. Raises InvalidParameter, PageError."""
        asked, own = self.text("cluster"), self.viewer.cluster
        if own and asked not in ("", own):
            raise PageError(
                403,
                f"cluster={asked}: your rights are those of cluster {own} only",
                remedy=f"Leave the parameter cluster out, or give {own}.",
            )
        return own or asked

    @property
    def scope(self) -> QueryScope:
        """The namespaces to read: those of the parameters that the viewer's cluster has."""
        return QueryScope(self.namespace, self.cluster)

    def text(self, name: str) -> str:
        """Return a parameter, "" when it is not given. Raises InvalidParameter."""
        return query_parameters.text(self.query, name)

    def number(self, name: str, default: int, highest: int) -> int:
        """Return a whole number from 1 to `highest`. Raises InvalidParameter."""
        value = query_parameters.number(self.query, name, default, highest)
        if not value:
            raise InvalidParameter(name, "0", message=f"it is 1 to {highest}")
        return value

    def href(self, path: str, /, **parameters: object) -> str:
        """Return the address of a page as of the same moment; empty parameters are left out."""
        kept = {name: self.query.get(name, "") for name in KEPT}
        given = {**kept, **{name: str(value) for name, value in parameters.items()}}
        query = urlencode({name: value for name, value in given.items() if value})
        return f"{path}?{query}" if query else path

    def here(self, /, **parameters: object) -> str:
        """Return the address of this page with some parameters changed; "" removes one."""
        return self.href(self.path, **{**self.query, **parameters})

    async def may(self, resource: str, namespace: str = "", *, verb: str = "list") -> bool:
        """Return whether the viewer has a right. Raises PageError as `Viewer.may`."""
        return await self.viewer.may(verb, resource, namespace)

    async def require(self, resource: str, namespace: str = "", *, verb: str = "list") -> None:
        """Raise PageError 403 without this right."""
        if await self.viewer.may(verb, resource, namespace):
            return
        where = f"in namespace {namespace}" if namespace else "in all namespaces"
        raise PageError(
            403,
            f"You may not {verb} {resource}.gpuledger.io {where}.",
            remedy="Ask for a role that allows it, or open a namespace that you may read.",
        )
