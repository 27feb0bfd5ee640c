"""User pseudonyms: how names of users are recorded where the log must not hold names of persons.

A pseudonym is an HMAC of the name: the same name has the same one as long as the key is the same,
and nothing but the key leads from a name to it. Names that begin with `system:` belong to service
accounts and components, not to persons, and stay readable.
"""

import hashlib
import hmac
from typing import Final

KEY_BYTES_MIN: Final = 32
PREFIX: Final = "pseudonym-"

_CHARACTERS: Final = 32
_NOT_PERSONS: Final = "system:"


def pseudonym(key: bytes, name: str) -> str:
    """Return the pseudonym of a user's name; an empty name, or the name of no person, as it is."""
    if not name or name.startswith(_NOT_PERSONS):
        return name
    digest = hmac.new(key, name.encode(), hashlib.sha256).hexdigest()
    return f"{PREFIX}{digest[:_CHARACTERS]}"
