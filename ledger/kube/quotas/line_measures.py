"""Line measures: what the amount of a quota line measures, and its base unit for metrics.

A line's amount is in the ledger's unit of its resource: MiB of cards, cards, a vendor's units of
cores, thousandths of a CPU. Monitoring sums over lines of one base unit only.
"""

from enum import StrEnum
from typing import Final, NamedTuple

from ledger.kube.quotas.unenforced_quota_keys import PREFIXES
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.requests.quantities import MEBIBYTE
from ledger.kube.vendors.vendors import Vendor

_MILLI: Final = 1_000


class QuotaMeasure(StrEnum):
    """The measured thing: memory in bytes, cards, cores as a ratio of a card's, CPU in cores.

    `UNITS` are those of the resource itself, where no other measure applies.
    """

    MEMORY = "memory"
    CARDS = "cards"
    CORES = "cores"
    CPU = "cpu"
    UNITS = "units"


class LineMeasure(NamedTuple):
    """A measure, and how the ledger's amounts become amounts in its base unit.

    An amount is multiplied by `factor` and divided by `divisor`, so that no rounding shows.
    """

    measure: QuotaMeasure
    factor: int = 1
    divisor: int = 1


OTHER: Final = LineMeasure(QuotaMeasure.UNITS)
"""The measure of a line that is not among the rules, for example of a vendor that is no longer
enabled."""


def line_measures(rules: DemandRules) -> dict[str, LineMeasure]:
    """Return the measure of every managed quota key; `OTHER` applies to all keys besides."""
    of_resources = {
        name: measure for vendor in rules.vendors for name, measure in _of_vendor(vendor).items()
    }
    for names in rules.typed.values():
        of_resources |= {typed: of_resources[name] for name, typed in names.items()}
    for name in rules.besides:
        of_resources[name] = _NATIVE.get(name, OTHER)
    measures = dict(of_resources)
    for prefix in PREFIXES:
        measures |= {prefix + name: measure for name, measure in of_resources.items()}
    return measures


_NATIVE: Final = {
    "cpu": LineMeasure(QuotaMeasure.CPU, divisor=_MILLI),
    "memory": LineMeasure(QuotaMeasure.MEMORY),
}


def _of_vendor(vendor: Vendor) -> dict[str, LineMeasure]:
    measures = {
        vendor.count: LineMeasure(QuotaMeasure.CARDS),
        vendor.memory: LineMeasure(QuotaMeasure.MEMORY, MEBIBYTE),
        vendor.cores: (
            LineMeasure(QuotaMeasure.CORES, divisor=vendor.whole_cores)
            if vendor.whole_cores
            else OTHER
        ),
    }
    return {name: measure for name, measure in measures.items() if name}
