"""With a key, no name of a user is written anywhere, and an operator finds who it was."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from support.harness.command_line import gpuledger
from support.servers.service_process import creation, running_service

pytestmark = pytest.mark.integration

USER = "alice.liddell@wonderland.example"
ACCOUNT = "system:serviceaccount:team:builder"
KEY = "0123456789abcdef" * 4
CARDS = "nvidia.com/gpu"
WAIT_SECONDS = 60.0


def review(name: str, user: str) -> dict[str, Any]:
    made = creation(name)
    made["request"]["userInfo"]["username"] = user
    return made


def holding(store: Path, text: str) -> list[str]:
    """Return the files of a store that hold a text."""
    files = [path for path in store.rglob("*") if path.is_file()]
    return [path.name for path in files if text.encode() in path.read_bytes()]


async def used(store: Path, *options: str) -> None:
    """Run a service on a store that allows and denies a user's pods, and keeps both."""
    limit = f"requests.{CARDS}=2"
    assert gpuledger("quota", "set", "-n", "team", "gpus", limit, store=store).status == 0
    with running_service(store, *options) as service:
        async with service.client() as client:
            answers = []
            for name, user in (("a", USER), ("b", ACCOUNT), ("c", USER)):
                answer = await client.post("/admission/validate", json=review(name, user))
                answers.append(answer.json()["response"]["allowed"])
            assert answers == [True, True, False]
            async with asyncio.timeout(WAIT_SECONDS):
                while not (await client.get("/v1/denials")).json():  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
        assert service.stop() == 0


async def test_no_name_of_a_user_is_written_and_its_pseudonym_is_found(tmp_path: Path) -> None:
    store, key = tmp_path / "store", tmp_path / "pseudonym.key"
    key.write_text(KEY)
    await used(store, f"--pseudonym-key-file={key}")
    assert holding(store, USER) == []
    printed = gpuledger("pseudonym", USER, f"--pseudonym-key-file={key}")
    assert (printed.status, printed.err) == (0, "")
    pseudonym = printed.out.strip()
    lines = gpuledger("audit", "replay", "-o", "json", store=store).out.splitlines()
    assert sum(f'"actor":"{pseudonym}"' in line for line in lines) == 1
    assert sum(f'"actor":"{ACCOUNT}"' in line for line in lines) == 1
    [denied] = gpuledger("denials", "-o", "json", store=store).json
    assert denied["actor"] == pseudonym


async def test_without_a_key_names_are_written(tmp_path: Path) -> None:
    store = tmp_path / "store"
    await used(store)
    assert holding(store, USER)


@pytest.mark.parametrize(("content", "says"), [("short", "5 bytes are too few"), (None, "No such")])
def test_a_key_that_cannot_be_used_is_named_before_anything_starts(
    content: str | None, says: str, tmp_path: Path
) -> None:
    key = tmp_path / "pseudonym.key"
    if content is not None:
        key.write_text(content)
    for command in (("serve", "--no-kubernetes", "--listen=127.0.0.1:0"), ("pseudonym", USER)):
        store = tmp_path / "store" if command[0] == "serve" else None
        ended = gpuledger(*command, f"--pseudonym-key-file={key}", store=store)
        assert ended.status == 2, ended
        assert f"pseudonym_key_file = {key}: " in ended.err
        assert says in ended.err


def test_the_command_asks_for_the_key() -> None:
    ended = gpuledger("pseudonym", USER)
    assert ended.status == 2
    assert "--pseudonym-key-file" in ended.err
