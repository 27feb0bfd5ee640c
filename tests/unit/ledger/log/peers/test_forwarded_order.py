"""Commands that may be forwarded: one that was decided here after a timeout may still arrive."""

from typing import Any

import pytest

from ledger.core.model import accounts, cards, commands, events
from ledger.core.model.commands import AnyCommand
from ledger.log.jetstream.stream_configuration import StreamNames
from ledger.log.ledger_port import Accepted
from ledger.log.log_port import Unreachable
from ledger.log.peers.forwarding import ForwardingLedger

ACCOUNT = accounts.quota("c1", "red", "main")


class Preferred:
    writer = "here"
    owner = "there"


class Sending:
    """A connection without any answer. `sent` counts requests."""

    def __init__(self) -> None:
        self.sent = 0

    async def request(self, *_: object, **__: object) -> bytes:
        self.sent += 1
        raise Unreachable("nobody answers")


class Deciding:
    """The local writer. `decided` holds what it was asked."""

    def __init__(self) -> None:
        self.decided: list[AnyCommand] = []

    async def submit(self, command: AnyCommand, *, dry_run: bool = False) -> Accepted:
        del dry_run
        self.decided.append(command)
        return Accepted(1, "d", True)


@pytest.mark.parametrize(
    ("command", "sent"),
    [
        (commands.SetLimits(ACCOUNT, ("c1/red",), {"requests.nvidia.com/gpu": 2}), 0),
        (commands.CloseAccount(ACCOUNT), 0),
        (commands.RegisterCards("c1/n1", cards.OWN, ()), 0),
        (commands.RemoveNode("c1/n1"), 0),
        (commands.Unplace("c1/red", "pods/p", "u1", "c1/n1", events.Cause.UNBOUND), 0),
        (commands.Resize("c1/red", "pods/p", "u1", (), {}), 0),
        (commands.Withdraw("c1/red", "pods/p", "u1", events.Cause.ELAPSED), 0),
        (commands.Place("c1/red", "pods/p", "u1", "c1/n1", ()), 1),
        (commands.Reserve("c1/red", "pods/p", "u1", {"nvidia.com/gpu": 1}), 1),
    ],
)
async def test_what_replaces_an_earlier_command_is_not_sent(command: AnyCommand, sent: int) -> None:
    connection: Any = Sending()
    local = Deciding()
    forwarder = ForwardingLedger(
        connection, StreamNames("main"), preference=Preferred(), local=local
    )
    await forwarder.submit(command)
    assert connection.sent == sent
    assert local.decided == [command]
