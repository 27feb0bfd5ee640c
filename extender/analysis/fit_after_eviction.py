"""Fit after eviction: whether a pod fits on a node once some placements there have ended."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager

import numpy as np

from extender.fit.feasible_nodes import chosen_parts
from extender.fit.inventory_fit import InventoryFit
from extender.inventory.card_arrays import CardArrays
from extender.inventory.card_rows import ALL_SLICES, slices_of
from extender.scheduler_api.scheduling_request import SchedulingRequest
from ledger.core.evolve.placement_charges import bookings_of
from ledger.core.model.card_bookings import exclusive_on
from ledger.core.model.cards import Parts, Placement


def fits_after(
    fit: InventoryFit, request: SchedulingRequest, node: str, leaving: Collection[Placement]
) -> bool:
    """Return whether a pod fits on a node once these placements there have ended."""
    return cards_after(fit, request, node, leaving) is not None


def cards_after(
    fit: InventoryFit, request: SchedulingRequest, node: str, leaving: Collection[Placement]
) -> Parts | None:
    """Return the cards of a node that a pod would get once these placements there have ended."""
    row = fit.inventory.rows.get(node)
    if row is None:
        return None
    arrays = fit.inventory.arrays
    with _left(arrays, row, leaving):
        fits = fit.fits(request, np.array([row], np.int64))
    return chosen_parts(fits, 0, arrays, request.devices) if fits.feasible[0] else None


@contextmanager
def _left(arrays: CardArrays, row: int, leaving: Collection[Placement]) -> Iterator[None]:
    """Let placements have left a row, within the block."""
    touched = [arrays.used_memory, arrays.used_cores, arrays.used_slots, arrays.alone]
    before = [array[row].copy() for array in touched]
    slices = arrays.slices[row].copy()
    at = {uuid: column for column, uuid in enumerate(arrays.uuids[row]) if uuid}
    try:
        for placed in leaving:
            alone = exclusive_on(placed.parts, initialised=placed.initialised)
            for uuid, booking in bookings_of(placed).items():
                if uuid not in at:
                    continue
                for array, amount in zip(touched, (*booking, uuid in alone), strict=True):
                    array[row, at[uuid]] -= amount
                arrays.slices[row, at[uuid]] &= np.uint64(ALL_SLICES ^ slices_of((placed,), uuid))
        yield
    finally:
        for array, values in zip(touched, before, strict=True):
            array[row] = values
        arrays.slices[row] = slices
