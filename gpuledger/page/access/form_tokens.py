"""Form tokens: proof that a form was sent from a page that this service rendered for its user.

A token is a keyed hash of the user. Another site cannot read a page, so it has no token.
"""

import hashlib
import hmac
import secrets
from typing import Final

KEY_BYTES: Final = 32


class FormTokens:
    """Makes and checks the tokens of forms with one key."""

    def __init__(self, key: bytes = b"") -> None:
        """Use a key; without one, a random one, so tokens end with the process."""
        self._key = key or secrets.token_bytes(KEY_BYTES)

    def token(self, user: str) -> str:
        """Return the token of a user's forms; `user` is the key of the viewer or session."""
        return hmac.new(self._key, f"form\0{user}".encode(), hashlib.sha256).hexdigest()

    def is_valid(self, token: str, user: str) -> bool:
        """Return whether a form has the token of its user."""
        return hmac.compare_digest(token.encode(), self.token(user).encode())
