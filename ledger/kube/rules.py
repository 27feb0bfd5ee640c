"""The rules by which requests of containers become amounts: resource names, factor and defaults."""

from functools import lru_cache

import msgspec


class DemandRules(msgspec.Struct, frozen=True, kw_only=True):
    """How one vendor's cards are asked for, in HAMi's words, and what counts besides.

    `memory_factor` turns units of the memory resource into MiB. The defaults apply per card to
    containers that leave something out: `default_memory` in MiB, 0 for the whole card;
    `default_cores` in percent of a card; `default_count` cards when only memory or cores are
    named, 0 to refuse that. `worst_card_memory` is how many MiB a card may have at most, None
    when that is not known. `managed` names further resources to count, such as `cpu`, `memory`
    or `nvidia.com/mig-1g.10gb`.
    """

    count: str = "nvidia.com/gpu"
    memory: str = "nvidia.com/gpumem"
    percentage: str = "nvidia.com/gpumem-percentage"
    cores: str = "nvidia.com/gpucores"
    memory_factor: int = 1
    default_memory: int = 0
    default_cores: int = 0
    default_count: int = 1
    worst_card_memory: int | None = None
    managed: tuple[str, ...] = ()

    def of_cards(self) -> frozenset[str]:
        """Return the names of the resources that ask for cards or for shares of them."""
        return _of_cards(self.count, self.memory, self.percentage, self.cores)


@lru_cache(maxsize=64)
def _of_cards(*names: str) -> frozenset[str]:
    return frozenset(names)
