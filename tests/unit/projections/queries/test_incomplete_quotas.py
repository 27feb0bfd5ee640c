"""A quota that selects by a label is incomplete while that label was not read of an object."""

from pathlib import Path

from support.builders.decide_and_fold import record
from support.harness.projection_harness import log_of, project, viewing

from ledger.core.model import accounts, commands
from ledger.core.model.state import State
from ledger.core.model.traits import Requirement, Selection
from projections.queries.query_scope import EVERYTHING
from projections.queries.quota_usage import usage

SPACE = "c1/red"


def limits(selects: Selection) -> commands.SetLimits:
    account = accounts.quota("c1", "red", "main")
    return commands.SetLimits(account, (SPACE,), {"limits.nvidia.com/gpu": 4}, selects=selects)


def seen(version: int, *traits: str) -> commands.Observe:
    return commands.Observe(SPACE, "pods/p", "uid-p", version, {"nvidia.com/gpu": 1}, traits=traits)


async def test_quota_is_incomplete_when_a_stored_object_lacks_the_label(tmp_path: Path) -> None:
    state, path = State(), tmp_path / "ledger.sqlite"
    payloads: list[bytes] = []
    incomplete = []
    for command in (
        limits(()),
        seen(1),
        limits((Requirement("app", "Exists"),)),
        seen(2, "!read=1"),
    ):
        payload = record(state, [command])
        assert payload is not None
        payloads.append(payload)
        await project(path, log_of(payloads))
        async with viewing(path) as view:
            lines, _ = await usage(view, len(payloads), EVERYTHING, limit=10)
        incomplete += [line.incomplete for line in lines]
    assert incomplete == [False, False, True, False]
