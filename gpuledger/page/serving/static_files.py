"""Static files of the pages: style and icon, read once, kept by browsers for their version."""

import hashlib
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from gpuledger.page.page_errors import PageError
from gpuledger.page.serving import answer_headers

_FOLDER: Final = Path(__file__).parents[1] / "static"
_TYPES: Final = {".css": "text/css", ".svg": "image/svg+xml"}
_FILES: Final = {path.name: path.read_bytes() for path in sorted(_FOLDER.iterdir())}

EDITION: Final = hashlib.sha256(b"".join(_FILES.values())).hexdigest()[:12]
"""A text that changes with any of the files; the addresses of the files have it."""

KEPT: Final = "public, max-age=604800, immutable"


async def static_file(request: Request) -> Response:
    """Return a file by the parameter `name` of the path. Raises PageError 404."""
    name = request.path_params["name"]
    body = _FILES.get(name)
    if body is None:
        raise PageError(404, f"There is no file {request.url.path}.")
    current = request.url.query == EDITION
    kept = KEPT if current else answer_headers.SECURITY["Cache-Control"]
    return Response(body, media_type=_TYPES[Path(name).suffix], headers={"Cache-Control": kept})
