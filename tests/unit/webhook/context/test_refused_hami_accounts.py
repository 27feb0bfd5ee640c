"""Refused accounts that may be a HAMi's are kept; tenants' accounts are not, however many."""

import asyncio

import pytest

from webhook.context.expiring_counter import KEPT_SECONDS, KEYS_MAX
from webhook.context.refused_hami_accounts import QUESTIONS_MAX, RefusedHamiAccounts

HAMI = "system:serviceaccount:gpu:vgpu-hami-scheduler"


class Rights:
    """Gives HAMi its rights once `answering` is set, and fails with `failure`."""

    def __init__(self) -> None:
        self.answering = asyncio.Event()
        self.answering.set()
        self.asked: list[str] = []
        self.failure: ConnectionError | None = None
        self.everybody = False

    async def __call__(self, user: str) -> bool:
        self.asked.append(user)
        await self.answering.wait()
        if self.failure is not None:
            raise self.failure
        return self.everybody or user == HAMI


def soon() -> float:
    return asyncio.get_running_loop().time() + 30.0


async def test_an_account_with_hamis_rights_is_kept_with_the_setting() -> None:
    rights = Rights()
    refused = RefusedHamiAccounts(rights)
    assert [await refused.note(HAMI, soon()) for _ in range(3)] == [True] * 3
    assert rights.asked[0] == HAMI
    [problem] = refused.problems()
    for words in (HAMI, "3 of its writes", "trusted_identities", "import hami --dry-run"):
        assert words in problem, problem


async def test_tenants_do_not_fill_the_memory() -> None:
    refused = RefusedHamiAccounts(Rights())
    await refused.note(HAMI, soon())
    for number in range(3 * KEYS_MAX):
        assert not await refused.note(f"tenant-{number}", soon())
    assert len(refused) == len(refused.problems()) == 1


async def test_the_memory_is_bounded_even_for_accounts_with_rights() -> None:
    rights = Rights()
    rights.everybody = True
    refused = RefusedHamiAccounts(rights)
    for number in range(3 * KEYS_MAX):
        await refused.note(f"operator-{number}", soon())
    assert len(refused) == KEYS_MAX


async def test_few_questions_are_open_at_once() -> None:
    rights = Rights()
    rights.answering.clear()
    refused = RefusedHamiAccounts(rights)
    tenants = [f"tenant-{number}" for number in range(QUESTIONS_MAX)]
    async with asyncio.TaskGroup() as tasks:
        for tenant in tenants:
            tasks.create_task(refused.note(tenant, soon()))
        await asyncio.sleep(0)
        assert not await refused.note(HAMI, soon()), "it is not waited for"
        assert len(rights.asked) == QUESTIONS_MAX
        rights.answering.set()
    assert await refused.note(HAMI, soon())


async def test_what_is_not_answered_is_no(monkeypatch: pytest.MonkeyPatch) -> None:
    rights = Rights()
    refused = RefusedHamiAccounts(rights)
    rights.failure = ConnectionError("away")
    assert not await refused.note(HAMI, soon())
    rights.answering.clear()
    assert not await refused.note(HAMI, asyncio.get_running_loop().time())
    assert refused.problems() == []
    assert not await RefusedHamiAccounts(None).note(HAMI, soon())


async def test_an_account_is_forgotten_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    refused, loop = RefusedHamiAccounts(Rights()), asyncio.get_running_loop()
    await refused.note(HAMI, soon())
    later = loop.time() + KEPT_SECONDS + 1
    monkeypatch.setattr(loop, "time", lambda: later)
    assert (len(refused), refused.problems()) == (0, [])
