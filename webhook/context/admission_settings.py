"""Admission settings: the settings of the mutating and the validating webhook."""

from collections.abc import Callable
from typing import Final

import msgspec

from webhook.context.card_schedulers import CardSchedulers

HAMI_IDENTITIES: Final = (
    "system:serviceaccount:kube-system:hami-scheduler",
    "system:serviceaccount:kube-system:hami-device-plugin",
    "system:serviceaccount:kube-system:hami-ascend",
)
"""The users that write HAMi's allocation annotations if its chart is installed as `hami` in
kube-system.

Another release name or namespace gives other accounts, which
`ledger.kube.cluster.hami_accounts` finds.
"""


CLAIM_CONTROLLERS: Final = (
    "system:kube-controller-manager",
    "system:serviceaccount:kube-system:resource-claim-controller",
)
"""The users that generate the ResourceClaims of pods from templates."""

CLAIM_SCHEDULERS: Final = ("system:kube-scheduler",)
"""The users that create the ResourceClaims by which DeviceClasses serve extended resources."""


class AdmissionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The webhooks' settings.

    `deadline` is seconds for one request, below the webhook's own `timeoutSeconds`. `body_max` is
    in bytes. With `allow_unavailable`, requests are admitted uncharged while the ledger cannot
    decide. At most `owner_holds_max` creations of one owner in a namespace may be open, 0 for no
    bound. `trusted` names the users that may write the annotations of allocations and of the
    ledger. `schedulers` place pods on cards. Only ResourceClaims that `claim_controllers` create
    may count with their pod, and those of extended resources only if `claim_schedulers` create
    them. With `universe_authority`, the universe quotas of this cluster count. `recorded` returns
    the recorded form of a user's name.
    """

    deadline: float = 9.0
    body_max: int = 3 * 1024 * 1024
    allow_unavailable: bool = False
    allow_privileged: bool = False
    owner_holds_max: int = 64
    trusted: tuple[str, ...] = HAMI_IDENTITIES
    schedulers: CardSchedulers = CardSchedulers()
    claim_controllers: tuple[str, ...] = CLAIM_CONTROLLERS
    claim_schedulers: tuple[str, ...] = CLAIM_SCHEDULERS
    universe_authority: bool = True
    recorded: Callable[[str], str] = str
