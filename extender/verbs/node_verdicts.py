"""Node verdicts: the nodes of a request on which a pod fits, and for every other node the reason.

Nodes without announced cards are judged by the annotations in the request, if it has the nodes in
full.
"""

from collections.abc import Sequence
from itertools import compress
from typing import Final, NamedTuple

import msgspec
import numpy as np

from extender.fit.feasible_nodes import FitResult
from extender.fit.inventory_fit import UNKNOWN, InventoryFit
from extender.fit.node_failure_reasons import reasons_of
from extender.fit.node_score_expression import Floats
from extender.inventory.card_arrays import Booleans, Integers
from extender.scheduler_api.extender_wire import (
    ExtenderArgs,
    FilterResult,
    NodeMeta,
    RawNodeList,
    read_node,
)
from extender.scheduler_api.scheduling_request import SchedulingRequest
from ledger.core.model.denials import Denial, Reason

UNREGISTERED: Final = str(Reason.NODE_UNREGISTERED)


class Candidates(NamedTuple):
    """The nodes of a request by name; `raw` and `read` are there when it has them in full."""

    names: Sequence[str]
    raw: Sequence[msgspec.Raw] = ()
    read: Sequence[NodeMeta] = ()


class Verdicts(NamedTuple):
    """For each candidate whether it is returned, and by node the reasons of the others."""

    passed: list[bool]
    failed: dict[str, str]
    unresolvable: dict[str, str]


class FilteredNodes(msgspec.Struct, frozen=True):
    """The feasibility and score of the nodes `names`, which are at `places` of the request.

    `fits` is about the registered nodes, which come first, and `simulated` about the other nodes
    with cards. A node of the request that is not in `names` announces no card.
    """

    fits: FitResult
    names: Sequence[str]
    places: Integers
    score: Floats
    feasible: Booleans
    simulated: FitResult | None = None


def candidates(args: ExtenderArgs) -> Candidates:
    """Return the nodes of a request. Raises BadRequest."""
    if args.nodes is None:
        return Candidates(args.node_names or ())
    raw = args.nodes.items or []
    read = [read_node(node) for node in raw]
    return Candidates([node.name for node in read], raw, read)


def result(args: ExtenderArgs, nodes: Candidates, verdicts: Verdicts) -> FilterResult:
    """Return the answer in the form of the request."""
    if args.nodes is None:
        names = list(compress(nodes.names, verdicts.passed))
        return FilterResult(None, names, verdicts.failed, verdicts.unresolvable)
    passed = RawNodeList(args.nodes.metadata, list(compress(nodes.raw, verdicts.passed)))
    return FilterResult(passed, None, verdicts.failed, verdicts.unresolvable)


def everywhere(nodes: Candidates) -> Verdicts:
    """Let all nodes pass: the pod wants no card."""
    return Verdicts([True] * len(nodes.names), {}, {})


def nowhere(nodes: Candidates, denial: Denial) -> Verdicts:
    """Let no node pass: no node and no eviction helps."""
    reason = f"{denial.reason}: {denial.message}"
    return Verdicts([False] * len(nodes.names), {}, dict.fromkeys(nodes.names, reason))


def only(nodes: Candidates, node: str) -> Verdicts:
    """Let the node pass where the pod has cards already."""
    reason = f"{Reason.POD_PLACED}: it has cards of {node}, where its bind may be under way"
    passed = [name == node for name in nodes.names]
    failed = {name: reason for name in nodes.names if name != node}
    return Verdicts(passed, failed, {})


def filtered(fit: InventoryFit, request: SchedulingRequest, nodes: Candidates) -> FilteredNodes:
    """Fit a pod on all nodes at once."""
    rows = fit.rows_of(nodes.names)
    unknown = np.nonzero(rows == UNKNOWN)[0]
    if not len(unknown):
        fits = fit.fits(request, rows)
        return FilteredNodes(fits, nodes.names, np.arange(len(rows)), fits.score, fits.feasible)
    places = np.nonzero(rows != UNKNOWN)[0]
    fits = fit.fits(request, rows[places])
    names = [nodes.names[place] for place in places.tolist()]
    answer = FilteredNodes(fits, names, places, fits.score, fits.feasible)
    return _with_simulated(fit, request, nodes, unknown, answer) if nodes.read else answer


def passing(nodes: Candidates, answer: FilteredNodes, chosen: Booleans) -> Verdicts:
    """Let the chosen nodes of an answer pass, without reasons for the others."""
    passed = np.zeros(len(nodes.names), np.bool_)
    passed[answer.places[chosen]] = True
    return Verdicts(passed.tolist(), {}, {})


def explained(nodes: Candidates, answer: FilteredNodes) -> Verdicts:
    """Let all feasible nodes of an answer pass, with a reason for every other node."""
    verdicts, registered = passing(nodes, answer, answer.feasible), len(answer.fits.rows)
    _enter_reasons(verdicts, answer.names[:registered], answer.fits)
    if answer.simulated is not None:
        _enter_reasons(verdicts, answer.names[registered:], answer.simulated)
    if len(answer.names) < len(nodes.names):
        without = np.ones(len(nodes.names), np.bool_)
        without[answer.places] = False
        for place in np.nonzero(without)[0].tolist():
            verdicts.unresolvable[nodes.names[place]] = UNREGISTERED
    return verdicts


def _with_simulated(
    fit: InventoryFit,
    request: SchedulingRequest,
    nodes: Candidates,
    unknown: Integers,
    answer: FilteredNodes,
) -> FilteredNodes:
    """Judge unregistered nodes by their annotations."""
    simulated = fit.of_simulated([nodes.read[place] for place in unknown])
    rows = simulated.rows_of([nodes.names[place] for place in unknown])
    places = unknown[rows != UNKNOWN]
    if not len(places):
        return answer
    fits = simulated.fits(request, rows[rows != UNKNOWN])
    return FilteredNodes(
        answer.fits,
        [*answer.names, *(nodes.names[place] for place in places.tolist())],
        np.concatenate((answer.places, places)),
        np.concatenate((answer.score, fits.score)),
        np.concatenate((answer.feasible, fits.feasible)),
        fits,
    )


def _enter_reasons(verdicts: Verdicts, names: Sequence[str], fits: FitResult) -> None:
    """Enter the reasons why the pod does not fit on some of these nodes."""
    reasons, refused = reasons_of(fits), ~fits.feasible
    for where, rows in (
        (verdicts.failed, refused & fits.hopeful),
        (verdicts.unresolvable, refused & ~fits.hopeful),
    ):
        chosen = rows.tolist()
        where.update(zip(compress(names, chosen), compress(reasons, chosen), strict=True))
