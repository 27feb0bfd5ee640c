"""Page list: all pages, in the order of the navigation."""

from typing import Final

from gpuledger.page.page_definition import PageDefinition
from gpuledger.page.views.audit_page import AUDIT
from gpuledger.page.views.cards_page import CARDS
from gpuledger.page.views.denial_list_page import DENIALS
from gpuledger.page.views.fit_page import FIT
from gpuledger.page.views.history_page import HISTORY
from gpuledger.page.views.namespace_list_page import NAMESPACES
from gpuledger.page.views.namespace_page import NAMESPACE
from gpuledger.page.views.overview_page import OVERVIEW
from gpuledger.page.views.record_page import RECORD
from gpuledger.page.views.waiting_list_page import WAITING

PAGES: Final[tuple[PageDefinition, ...]] = (
    OVERVIEW,
    NAMESPACES,
    NAMESPACE,
    DENIALS,
    WAITING,
    FIT,
    CARDS,
    HISTORY,
    AUDIT,
    RECORD,
)
