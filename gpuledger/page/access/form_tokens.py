"""Form tokens: proof that a form was sent from a page that this service rendered for its user.

A token is a keyed hash of the user. Another site cannot read a page, so it has no token.
"""

import hashlib
import hmac
from collections.abc import Callable


class FormTokens:
    """Makes and checks the tokens of forms."""

    def __init__(self, secret: Callable[[], bytes]) -> None:
        """`secret` returns the key that all replicas have; when it changes, all tokens end."""
        self._secret = secret

    def token(self, user: str) -> str:
        """Return the token of a user's forms; `user` is the key of the viewer or session."""
        return hmac.new(self._secret(), f"form\0{user}".encode(), hashlib.sha256).hexdigest()

    def is_valid(self, token: str, user: str) -> bool:
        """Return whether a form has the token of its user."""
        return hmac.compare_digest(token.encode(), self.token(user).encode())
