"""Stored quotas with warnings: their limits, and where the warnings are shown."""

import pytest
from support.harness.settlement import full_world, settling

from ledger.core.model import accounts
from ledger.kube.api.api_resources import UNIVERSE_QUOTAS
from webhook.quotas import quota_warnings

MEM = "limits.nvidia.com/gpumem"


def body(name: str, value: str) -> dict:
    return {"metadata": {"name": name, "generation": 1}, "spec": {"hard": {MEM: value}}}


async def test_quota_in_bytes_counts_as_mebibytes_and_warns_until_corrected():
    async with full_world() as world:
        world.server.create("resourcequotas", "red", body("q", "16Gi"))
        async with settling(world):
            await world.synced()
            assert world.limits("q") == {MEM: 16_384}
            assert world.settlement.quotas_with_warnings == 1
            [line] = world.settlement.warnings()
            assert line.startswith(f"quota/c/red/q: {MEM}: 16Gi has a binary suffix")
            assert "write 16384 for 16Gi" in line
            world.server.update("resourcequotas", "red", "q", spec={"hard": {MEM: "16384"}})
            await world.until(lambda: world.settlement.quotas_with_warnings == 0)
            assert world.settlement.warnings() == []
            assert world.limits("q") == {MEM: 16_384}


async def test_universe_quota_in_bytes_counts_as_mebibytes_and_warns():
    async with full_world() as world, settling(world):
        await world.synced()
        world.server.create(UNIVERSE_QUOTAS.name, "", body("all", "16Gi"))
        await world.until(lambda: accounts.universe("all") in world.state.accounts)
        account = world.state.accounts[accounts.universe("all")]
        assert world.state.limit[account.lines[MEM]] == 16_384
        assert world.settlement.quotas_with_warnings == 1
        world.server.delete(UNIVERSE_QUOTAS.name, "", "all")
        await world.until(lambda: world.settlement.quotas_with_warnings == 0)


@pytest.mark.parametrize("value", ["8200Ti", "1e400", "10e399", "-1", "0.5", "1e3", "", "9" * 400])
async def test_invalid_amount_of_a_quota_does_not_stop_the_others(value: str):
    async with full_world() as world, settling(world):
        await world.synced()
        world.server.create("resourcequotas", "red", body("odd", value))
        world.server.create(UNIVERSE_QUOTAS.name, "", body("odd", value))
        world.server.create("resourcequotas", "red", body("plain", "7"))
        await world.until(lambda: world.limits("plain") == {MEM: 7})


async def test_readiness_names_some_quota_warnings_and_counts_the_rest():
    warnings = quota_warnings.QuotaWarnings()
    for number in range(quota_warnings.SHOWN_MAX + 3):
        warnings.note(f"quota/c/red/{number}", ("odd", "and more"))
    lines = warnings.shown()
    assert len(lines) == quota_warnings.SHOWN_MAX + 1
    assert lines[0] == "quota/c/red/0: odd"
    assert lines[-1] == "3 more quotas have warnings"
    warnings.keep({"quota/c/red/0"})
    warnings.note("quota/c/red/0", ())
    assert (len(warnings), warnings.shown()) == (0, [])
