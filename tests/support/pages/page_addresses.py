"""Page addresses: every page of the product's list, with the query that a page needs."""

from typing import Final
from urllib.parse import urlencode

from gpuledger.page.page_list import PAGES
from gpuledger.page.page_paths import PREFIX
from ledger.core.model import accounts

_OF_NAMESPACES: Final = frozenset({"/namespace", "/history"})


def addresses(namespace: str, cluster: str, position: int = 42) -> tuple[str, ...]:
    """Return the address of each page, about a namespace and a position where it needs them."""
    return tuple(
        PREFIX + page.path + _query(page.path, namespace, cluster, position) for page in PAGES
    )


def _query(path: str, namespace: str, cluster: str, position: int) -> str:
    where = {"cluster": cluster, "namespace": namespace}
    if path == "/history":
        where["account"] = accounts.quota(cluster, namespace, "gpus")
    if path in _OF_NAMESPACES:
        return "?" + urlencode(where)
    return f"?position={position}" if path == "/record" else ""
