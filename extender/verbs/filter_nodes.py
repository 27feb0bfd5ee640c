"""Filtering: on which of the asked nodes a pod fits, and for every other one why not.

A pod that has cards of a node already, because its bind was cut short, fits on that node alone:
its cards wait for it there until it is bound or proved not to be.
"""

from collections.abc import Sequence
from itertools import compress
from typing import Final, NamedTuple

import msgspec
import numpy as np

from extender.fit.failed_nodes import reasons_of, resolvable
from extender.fit.fit_nodes import FitResult
from extender.fit.inventory_fit import UNKNOWN, FitEngine
from extender.inventory.arrays import Integers
from extender.scheduler_api.extender_wire import (
    ExtenderArgs,
    FilterResult,
    NodeMeta,
    RawNodeList,
    read_node,
)
from extender.scheduler_api.scheduling_request import FilteredNodes, SchedulingRequest
from ledger.core.model.denials import Denial, Reason

UNREGISTERED: Final = str(Reason.NODE_UNREGISTERED)


class Candidates(NamedTuple):
    """The nodes of a request by name; `raw` and `read` are there when it has them in full."""

    names: Sequence[str]
    raw: Sequence[msgspec.Raw] = ()
    read: Sequence[NodeMeta] = ()


class Verdicts(NamedTuple):
    """Where a pod fits, by candidate, and by node why it does not."""

    passed: list[bool]
    failed: dict[str, str]
    unresolvable: dict[str, str]


def candidates(args: ExtenderArgs) -> Candidates:
    """Return the nodes of a request. Raises BadRequest."""
    if args.nodes is None:
        return Candidates(args.node_names or ())
    raw = args.nodes.items or []
    read = [read_node(one) for one in raw]
    return Candidates([one.name for one in read], raw, read)


def result(args: ExtenderArgs, found: Candidates, verdicts: Verdicts) -> FilterResult:
    """Return the answer in the form of the request."""
    if args.nodes is None:
        names = list(compress(found.names, verdicts.passed))
        return FilterResult(None, names, verdicts.failed, verdicts.unresolvable)
    nodes = RawNodeList(args.nodes.metadata, list(compress(found.raw, verdicts.passed)))
    return FilterResult(nodes, None, verdicts.failed, verdicts.unresolvable)


def everywhere(found: Candidates) -> Verdicts:
    """Let all nodes pass: the pod wants no card."""
    return Verdicts([True] * len(found.names), {}, {})


def nowhere(found: Candidates, denial: Denial) -> Verdicts:
    """Let no node pass: no node and no eviction helps."""
    reason = f"{denial.reason}: {denial.message}"
    return Verdicts([False] * len(found.names), {}, dict.fromkeys(found.names, reason))


def only(found: Candidates, node: str) -> Verdicts:
    """Let the node pass where the pod has cards already."""
    reason = f"{Reason.POD_PLACED}: it has cards of {node}, where its bind may be under way"
    passed = [name == node for name in found.names]
    failed = {name: reason for name in found.names if name != node}
    return Verdicts(passed, failed, {})


def filtered(
    selecting: FitEngine, asked: SchedulingRequest, found: Candidates
) -> tuple[Verdicts, FilteredNodes]:
    """Ask for all nodes at once; those that announced nothing yet are taken at their word."""
    rows = selecting.rows_among(found.names)
    strange = np.nonzero(rows == UNKNOWN)[0]
    if not len(strange):
        fits = selecting.fits(asked, rows)
        verdicts = Verdicts(fits.feasible.tolist(), {}, {})
        _enter_reasons(verdicts, found.names, fits)
        return verdicts, FilteredNodes(fits, found.names, fits.score, fits.feasible)
    fits = selecting.fits(asked, rows[rows != UNKNOWN])
    verdicts = Verdicts([False] * len(found.names), {}, {})
    names = _enter(verdicts, found, np.nonzero(rows != UNKNOWN)[0], fits)
    fitted = FilteredNodes(fits, names, fits.score, fits.feasible)
    return verdicts, _with_strangers(selecting, asked, found, verdicts, strange, fitted)


def _with_strangers(
    selecting: FitEngine,
    asked: SchedulingRequest,
    found: Candidates,
    verdicts: Verdicts,
    strange: Integers,
    fitted: FilteredNodes,
) -> FilteredNodes:
    """Judge nodes that the ledger does not know by what they announce, if that was sent."""
    imagined = selecting.imagining([found.read[place] for place in strange] if found.read else [])
    rows = imagined.rows_among([found.names[place] for place in strange])
    for place in strange[rows == UNKNOWN]:
        verdicts.unresolvable[found.names[place]] = UNREGISTERED
    if not (rows != UNKNOWN).any():
        return fitted
    fits = imagined.fits(asked, rows[rows != UNKNOWN])
    names = _enter(verdicts, found, strange[rows != UNKNOWN], fits)
    return FilteredNodes(
        fitted.fits,
        [*fitted.names, *names],
        np.concatenate((fitted.score, fits.score)),
        np.concatenate((fitted.feasible, fits.feasible)),
    )


def _enter(
    verdicts: Verdicts, found: Candidates, places: Integers, fits: FitResult
) -> Sequence[str]:
    """Enter what was found out about the nodes at these places; return their names."""
    for place in places[fits.feasible].tolist():
        verdicts.passed[place] = True
    names = [found.names[place] for place in places.tolist()]
    _enter_reasons(verdicts, names, fits)
    return names


def _enter_reasons(verdicts: Verdicts, names: Sequence[str], fits: FitResult) -> None:
    """Enter why the pod does not fit on some of these nodes."""
    reasons = reasons_of(fits)
    for at in np.nonzero(~fits.feasible)[0].tolist():
        where = verdicts.failed if resolvable(fits, at) else verdicts.unresolvable
        where[names[at]] = reasons[at]
