"""Fixed slices: the offers of one cluster, as a page or query gets them."""

from collections.abc import Mapping

import msgspec


class FixedSlices:
    """Drivers by uuid by node of a cluster, known since a position, or never."""

    def __init__(
        self, cluster: str, cards: Mapping[str, Mapping[str, str]], *, since: int | None = 0
    ) -> None:
        self._cluster, self._cards, self._since = cluster, cards, since

    def hold_at(self, position: int, *, is_last: bool) -> bool:
        return self._since is not None and (is_last or position >= self._since)

    def drivers(self, cluster: str, node: str) -> Mapping[str, str] | None:
        return self._cards.get(node, {}) if cluster == self._cluster else None

    def names(self) -> str:
        cards = [(node, uuid) for node in self._cards for uuid in self._cards[node]]
        names = [f"{self._cluster}/{node}/{uuid}" for node, uuid in cards]
        return msgspec.json.encode(names).decode()
