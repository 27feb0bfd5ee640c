"""Admission settings: those of the webhooks."""

from collections.abc import Callable
from typing import Final

import msgspec

from webhook.api.card_schedulers import CardSchedulers

HAMI_IDENTITIES: Final = (
    "system:serviceaccount:kube-system:hami-scheduler",
    "system:serviceaccount:kube-system:hami-device-plugin",
    "system:serviceaccount:kube-system:hami-ascend",
)
"""The users that write HAMi's allocation annotations where its chart is installed as `hami` in
kube-system.

Another release name or namespace gives other accounts, which
`ledger.kube.cluster.hami_accounts` finds.
"""


class AdmissionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The webhooks' settings.

    `deadline` is seconds for one request, below the webhook's own `timeoutSeconds`. `body_max` is
    bytes. `allow_unavailable` admits, uncharged, what the ledger cannot decide on now. At most
    `owner_holds_max` creations of one owner in a namespace may be unsettled, 0 for no bound.
    `trusted` names the users that may write the annotations of allocation and of the ledger.
    `schedulers` are those that place pods on cards.
    With `universe_authority` universe quotas of this cluster count. `recorded` returns the text
    that the log holds for the name of a user.
    """

    deadline: float = 9.0
    body_max: int = 3 * 1024 * 1024
    allow_unavailable: bool = False
    allow_privileged: bool = False
    owner_holds_max: int = 64
    trusted: tuple[str, ...] = HAMI_IDENTITIES
    schedulers: CardSchedulers = CardSchedulers()
    universe_authority: bool = True
    recorded: Callable[[str], str] = str
