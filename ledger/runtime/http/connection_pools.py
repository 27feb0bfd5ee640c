"""Bounded pools of connections, shared fairly between addresses.

A new connection to a full pool replaces the least recently used connection of the address with the
most connections. So a client with many connections loses its own. A connection with a request in
progress is never replaced.
"""

from collections.abc import Iterator
from ipaddress import IPv6Address, ip_address
from typing import Final, Generic, Protocol, TypeVar

_NETWORK_BYTES: Final = 8
"""Of an IPv6 address, the network prefix: one client usually has a whole /64."""


class Member(Protocol):
    """A connection in a pool."""

    def is_busy(self) -> bool:
        """Return whether it must not be replaced."""
        ...

    def drop(self) -> None:
        """Close it at once, after it has left the pool."""
        ...


M = TypeVar("M", bound=Member)


class Pool(Generic[M]):
    """A pool of at most `members_max` connections, at most `of_one_max` of one address."""

    def __init__(self, members_max: int, of_one_max: int | None = None) -> None:
        """Without a bound per address, only the address with the most connections loses places."""
        self._members_max = members_max
        self._of_one_max = members_max if of_one_max is None else of_one_max
        self._addresses: dict[str, dict[M, None]] = {}
        self._count = 0

    def __len__(self) -> int:
        """Return how many members there are."""
        return self._count

    def __iter__(self) -> Iterator[M]:
        """Return all members as they are now; they may leave meanwhile."""
        return iter([member for members in self._addresses.values() for member in members])

    def add(self, address: str, member: M) -> bool:
        """Add a member, perhaps instead of another. Return False if there is no room."""
        if not self._make_room(address):
            return False
        self._addresses.setdefault(address, {})[member] = None
        self._count += 1
        return True

    def used(self, address: str, member: M) -> None:
        """Note that a member was just used."""
        members = self._addresses.get(address)
        if members is not None and member in members:
            del members[member]
            members[member] = None

    def remove(self, address: str, member: M) -> None:
        """Remove a member; it may have left before."""
        members = self._addresses.get(address)
        if members is None or member not in members:
            return
        del members[member]
        self._count -= 1
        if not members:
            del self._addresses[address]

    @property
    def is_full(self) -> bool:
        """Whether a new member would have to replace another."""
        return self._count >= self._members_max

    def has_room(self) -> bool:
        """Return whether a member can be added; this may drop another to make room."""
        return not self.is_full or self.drop_one()

    def drop_one(self) -> bool:
        """Drop the least recently used member of the address with the most. Return False if all are
        busy.
        """
        return any(
            self._drop_of(address)
            for address in sorted(self._addresses, key=self._of, reverse=True)
        )

    def _make_room(self, address: str) -> bool:
        if self._of(address) >= self._of_one_max:
            return self._drop_of(address)
        if not self.is_full:
            return True
        fullest = max(self._addresses, key=self._of)
        return self._drop_of(fullest) or self.drop_one()

    def _of(self, address: str) -> int:
        return len(self._addresses.get(address, ()))

    def _drop_of(self, address: str) -> bool:
        for member in self._addresses.get(address, ()):
            if not member.is_busy():
                self.remove(address, member)
                member.drop()
                return True
        return False


def address_of(host: str) -> str:
    """Return the address that identifies a peer; for IPv6, its network."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if not isinstance(address, IPv6Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return address.packed[:_NETWORK_BYTES].hex()
