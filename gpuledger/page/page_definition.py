"""Page definition: one page with its path, title, template and view."""

from collections.abc import Awaitable, Callable

import msgspec

from gpuledger.page.page_request import PageRequest


class PageDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """A page at a path below `/page`.

    `navigation` is its name in the navigation, "" for a page that is reached by links only. A page
    with a `form` accepts POST and does not refresh by itself. The template gets the result of
    `view` as `page`, and the request as `request`.
    """

    path: str
    title: str
    template: str
    view: Callable[[PageRequest], Awaitable[msgspec.Struct]]
    navigation: str = ""
    form: bool = False
