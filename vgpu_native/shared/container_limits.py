"""Container limits: the ledger's shares of a container as amounts on its limits page."""

from collections.abc import Sequence

from ledger.core.model.cards import WHOLE, Share
from vgpu_native.shared.layout import NO_LIMIT
from vgpu_native.shared.limits_page import MEBIBYTE, ContainerLimits, DeviceLimits


def limits_of(shares: Sequence[Share], flags: int = 0) -> ContainerLimits:
    """Return the limits of a container with these shares, in the container's device order.

    A share without memory or cores is not limited in them, as with HAMi. A scaled card can have
    shares of more than 100 percent; their limit is the whole card.
    """
    return ContainerLimits(
        tuple(
            DeviceLimits(
                share.uuid,
                share.memory * MEBIBYTE if share.memory else NO_LIMIT,
                min(share.cores, WHOLE) or WHOLE,
            )
            for share in shares
        ),
        flags,
    )
