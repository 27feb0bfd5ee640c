"""Page errors: refusals of a request, each with status, sentence and remedy, shown as a page."""

from typing import Final

TITLES: Final = {
    400: "The request is not valid",
    401: "Sign in",
    403: "No access",
    404: "Not found",
    405: "Wrong method",
    413: "The form is too large",
    429: "Too many requests",
    500: "Internal error",
    503: "Not available now",
    504: "The answer took too long",
}


class PageError(Exception):
    """A request is refused: HTTP `status`, a sentence, and what the user can do."""

    def __init__(self, status: int, message: str, *, remedy: str = "") -> None:
        """Store the parts; `status` is one of `TITLES`."""
        super().__init__(message)
        self.status, self.message, self.remedy = status, message, remedy

    @property
    def headers(self) -> dict[str, str]:
        """The headers that belong to the status."""
        return {"Retry-After": "1"} if self.status in (429, 503) else {}


class ManifestError(PageError):
    """A field of a manifest is invalid; `field` is its path."""

    def __init__(self, message: str, field: str) -> None:
        super().__init__(400, f"{field}: {message}" if field else message)
        self.field = field
