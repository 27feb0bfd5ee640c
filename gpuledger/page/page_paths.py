"""Page paths: the addresses that several parts of the pages name."""

from typing import Final

PREFIX: Final = "/page"
HOME: Final = f"{PREFIX}/"
LOGIN: Final = f"{PREFIX}/login"
LOGOUT: Final = f"{PREFIX}/logout"
