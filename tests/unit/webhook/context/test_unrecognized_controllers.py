"""Users that act for controllers without being configured are named, in bounded memory."""

import asyncio

from webhook.context.expiring_counter import KEPT_SECONDS, KEYS_MAX
from webhook.context.unrecognized_controllers import UnrecognizedControllers


async def test_who_is_not_believed_is_named_with_the_setting() -> None:
    unrecognized = UnrecognizedControllers()
    assert (len(unrecognized), unrecognized.problems()) == (0, [])
    for _ in range(3):
        unrecognized.note("replicasets.apps", "ops")
    [problem] = unrecognized.problems()
    assert "ops made 3 objects that replicasets.apps own" in problem
    assert "add replicasets.apps=ops to controller_identities" in problem
    assert len(unrecognized) == 1


async def test_users_that_make_claims_of_pods_are_named_with_the_setting() -> None:
    unrecognized = UnrecognizedControllers()
    unrecognized.note_claim("claim_controllers", "ops")
    [problem] = unrecognized.problems()
    assert "ops made 1 resource claims that pods own and is not in claim_controllers" in problem
    assert "add it to claim_controllers" in problem
    assert len(unrecognized) == 1


async def test_many_users_do_not_hide_a_user_that_makes_many_objects() -> None:
    unrecognized = UnrecognizedControllers()
    for _ in range(5):
        unrecognized.note("jobs.batch", "controller")
    for number in range(3 * KEYS_MAX):
        unrecognized.note("jobs.batch", f"tenant-{number}")
    assert len(unrecognized) == len(unrecognized.problems()) == KEYS_MAX
    assert any("controller made 5 objects" in problem for problem in unrecognized.problems())


async def test_a_name_is_forgotten_after_a_while(monkeypatch) -> None:
    unrecognized, loop = UnrecognizedControllers(), asyncio.get_running_loop()
    unrecognized.note("jobs.batch", "ops")
    later = loop.time() + KEPT_SECONDS + 1
    monkeypatch.setattr(loop, "time", lambda: later)
    assert (len(unrecognized), unrecognized.problems()) == (0, [])
