"""Page list: all pages, in the order of the navigation."""

from typing import Final

from gpuledger.page.page_definition import PageDefinition
from gpuledger.page.views.cards_page import CARDS
from gpuledger.page.views.fit_page import FIT
from gpuledger.page.views.overview_page import OVERVIEW

PAGES: Final[tuple[PageDefinition, ...]] = (OVERVIEW, FIT, CARDS)
