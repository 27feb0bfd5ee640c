"""Quotas set by hand: limits in the form of a ResourceQuota, recorded by a writer of the command.

A watched cluster is refused, because its quotas come from its ResourceQuotas.
"""

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from gpuledger.cli.exit_codes import CommandError, Exit
from gpuledger.storage.open_log import ACTOR, open_log, submit, writer_on
from gpuledger.storage.projection_catch_up import show_written
from gpuledger.wiring import demand_rules_from_settings
from ledger.core.model import accounts
from ledger.core.model.commands import CloseAccount, SetLimits
from ledger.core.model.qualified_names import qualified
from ledger.core.model.state import State
from ledger.kube.api.objects import ResourceQuota, ResourceQuotaSpec
from ledger.kube.quotas import hard_limits, resource_quota_limits
from ledger.runtime.settings.settings import Settings

_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")


class QuotaChange(msgspec.Struct, frozen=True):
    """The result of a command: the account, whether it changed, and the position of the record."""

    account: str
    changed: bool
    position: int


def parse_limits(texts: Sequence[str], settings: Settings) -> dict[str, int]:
    """Read `KEY=QUANTITY` texts as the hard limits of a ResourceQuota.

    Limits that only cause a warning on an existing object in a cluster are refused here. Raises
    CommandError naming the text.
    """
    given: dict[str, str] = {}
    for text in texts:
        key, equals, quantity = text.partition("=")
        if not (key and equals and quantity):
            raise CommandError(
                Exit.USAGE, f"{text!r} is not KEY=QUANTITY, as limits.nvidia.com/gpumem=8000"
            )
        if key in given:
            raise CommandError(Exit.USAGE, f"{key} is given twice, as {given[key]} and {quantity}")
        given[key] = quantity
    limits: dict[str, int] = {}
    for key, quantity in given.items():
        limits |= _limit(key, quantity, settings)
    if not limits:
        raise CommandError(
            Exit.USAGE,
            "0 means unlimited by the setting zero_is_unlimited, so the quota would have no limit;"
            " use `gpuledger quota delete`",
        )
    return limits


def _limit(key: str, quantity: str, settings: Settings) -> dict[str, int]:
    rules = demand_rules_from_settings.demand_rules(settings)
    for mistake in hard_limits.invalid_quantities({key: quantity}, {}, rules):
        raise CommandError(
            Exit.USAGE, f"{key} is {mistake.value}, which {mistake.why}; {mistake.remedy}"
        )
    quota = ResourceQuota(spec=ResourceQuotaSpec(hard={key: quantity}))
    parsed = resource_quota_limits.limits_of(quota, rules)
    if parsed.warnings:
        why = "; ".join(warning.removeprefix(f"{key}: ") for warning in parsed.warnings)
        raise CommandError(Exit.USAGE, f"{key}={quantity} is refused: {why}")
    if not parsed.limits:
        managed = ", ".join(rules.charged)
        raise CommandError(
            Exit.USAGE,
            f"{key}={quantity} is refused: {key} limits no managed resource; write limits. or"
            f" requests. and one of {managed}",
        )
    return {} if settings.zero_is_unlimited and not parsed.limits[key] else parsed.limits


async def set_limits(
    settings: Settings, namespace: str, name: str, limits: dict[str, int]
) -> QuotaChange:
    """Set all limits of a quota. Raises CommandError, and what opening and reading the log
    raises."""
    account = _account(settings, namespace, name)
    covers = (qualified(settings.cluster, namespace),)
    return await _write(settings, SetLimits(account, covers, limits, ACTOR), create=True)


async def close(settings: Settings, namespace: str, name: str) -> QuotaChange:
    """Delete a quota. Raises CommandError when there is none, and what opening the log raises."""
    account = _account(settings, namespace, name)
    return await _write(settings, CloseAccount(account, ACTOR), create=False)


async def _write(
    settings: Settings, command: SetLimits | CloseAccount, *, create: bool
) -> QuotaChange:
    async with open_log(settings, create=create) as opened:
        async with writer_on(settings, opened) as writer:
            _check(writer.state, settings, command)
            accepted = await submit(writer, command)
        await show_written(settings, opened, accepted.position)
    return QuotaChange(command.account, accepted.changed, accepted.position)


def _check(state: State, settings: Settings, command: SetLimits | CloseAccount) -> None:
    """Refuse changes that a watched cluster would revert, and deletions of unknown quotas. Raises
    CommandError.
    """
    if settings.cluster in state.clusters:
        raise CommandError(
            Exit.DENIED,
            f"the quotas of cluster {settings.cluster} come from its ResourceQuotas:"
            " change them with kubectl, or name another cluster with --cluster",
        )
    if isinstance(command, CloseAccount) and command.account not in state.accounts:
        raise CommandError(
            Exit.NOT_FOUND,
            f"there is no quota {command.account}; `gpuledger quota list` lists the quotas",
        )


def _account(settings: Settings, namespace: str, name: str) -> str:
    if not _LABEL.fullmatch(namespace):
        raise CommandError(
            Exit.USAGE, f"--namespace {namespace!r} is not the name of a namespace: use a-z, 0-9, -"
        )
    if not _SUBDOMAIN.fullmatch(name):
        raise CommandError(
            Exit.USAGE, f"{name!r} is not the name of a quota: use a-z, 0-9, - and ."
        )
    return accounts.quota(settings.cluster, namespace, name)
