"""The advice of a denial is found in few tries, even for large numbers."""

import pytest
from support.builders.quota_commands import tell

from ledger.core.decide import room_check
from ledger.core.model import accounts
from ledger.core.model.amounts import Amounts
from ledger.core.model.commands import Observe, Reserve, SetLimits
from ledger.core.model.denials import Denial, sentence
from ledger.core.model.state import State
from ledger.core.model.traits import Requirement

TEAM, WEB = "c1/team-a", "deployments.apps/web"
RESOURCES = tuple(f"t{number:02}.nvidia.com/gpumem" for number in range(16))
SELECTS = (Requirement("app", "In", ("b",)),)
TRIES_MAX = 3
"""Tries for each resource, once for now and once for quotas that nothing else uses."""


def of_each(amount: int) -> Amounts:
    return dict.fromkeys(RESOURCES, amount)


def tried(monkeypatch: pytest.MonkeyPatch, state: State, command: Reserve) -> tuple[str, int]:
    """Return the text of a denial, and how many demands were tried for it."""
    tries, attempted = [], room_check.attempted

    def counted(*args) -> list[room_check.Short]:
        tries.append(args)
        return attempted(*args)

    monkeypatch.setattr(room_check, "attempted", counted)
    denial = tell(state, command)
    assert isinstance(denial, Denial), denial
    return sentence(denial), len(tries)


def test_a_pod_beyond_its_envelope_is_denied_after_few_tries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state, account = State(), accounts.quota("c1", "team-a", "gpus")
    limits = {f"limits.{name}": 1_000_000_000 for name in RESOURCES}
    tell(state, SetLimits(account, (TEAM,), limits, selects=SELECTS))
    tell(state, Observe(TEAM, WEB, "u", 5, of_each(3), traits=("app=b",)))
    tell(state, Observe(TEAM, "pods/a", "a", 5, of_each(1), root=WEB, traits=("app=b",)))
    command = Reserve(TEAM, "pods/b", "b", of_each(2_000_000_000), root=WEB, traits=("app=b",))
    text, tries = tried(monkeypatch, state, command)
    assert "999999999 MiB of type t15 now for Pod b" in text
    assert tries <= 2 * TRIES_MAX * len(RESOURCES)


def test_an_update_is_denied_after_few_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    state, account = State(), accounts.quota("c1", "team-a", "gpus")
    limits = {f"limits.{name}": 1_000_000_000 for name in RESOURCES}
    tell(state, SetLimits(account, (TEAM,), limits, selects=SELECTS))
    tell(state, Observe(TEAM, "pods/a", "a", 5, of_each(7), traits=("app=b",)))
    tell(state, Observe(TEAM, WEB, "u", 5, of_each(3), traits=("app=b",)))
    command = Reserve(TEAM, WEB, "u", of_each(2_000_000_000), base=5, traits=("app=b",))
    text, tries = tried(monkeypatch, state, command)
    assert "999999993 MiB of type t15 now" in text
    assert tries <= 2 * TRIES_MAX * len(RESOURCES)
