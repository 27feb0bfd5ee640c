"""Node top: shows the answers of a node's agent on a terminal until interrupted."""

import asyncio
import sys
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import aiohttp
import msgspec
from rich.console import Console
from rich.live import Live
from rich.text import Text

from gpuledger.cli.exit_codes import CommandError, Exit
from gpuledger.cli.output import Format, show_object, show_rows, view_lines
from gpuledger.cli.tables.table_columns import Listing
from ledger.log.bounded_read import AnswerTooLong, read_whole
from ledger.log.jetstream.nats_errors import plainly
from vgpu_native.agent.usage_observer import ContainerUse

CONTAINERS: Final = "/v1/containers"
AGENT: Final = "http://127.0.0.1:9394"
"""The default URL of an agent."""

ANSWER_SECONDS: Final = 5.0
ANSWER_BYTES_MAX: Final = 16 * 1024**2

T = TypeVar("T")


class AgentAnswer(msgspec.Struct, frozen=True):
    """The shown fields of an agent's answer."""

    node: str
    position: int
    containers: tuple[ContainerUse, ...]
    drifts: tuple[dict[str, Any], ...] = ()


async def watch(agent: str, every: float, output: Format, listing: Listing, *, once: bool) -> None:
    """Show an agent's answer, once or at an interval. Raises CommandError."""
    async with aiohttp.ClientSession(
        timeout=aiohttp.ClientTimeout(total=ANSWER_SECONDS)
    ) as session:
        body = await _asked(session, agent)
        if output.is_object:
            show_object(_decoded(agent, body, dict[str, Any]), output)
        elif once or output is not Format.TABLE or not sys.stdout.isatty():
            show_rows(_view(agent, body).containers, listing, output, _NOTHING)
        else:
            await _live(session, agent, every, listing)


_NOTHING: Final = "No container of this node has limits."


async def _live(session: aiohttp.ClientSession, agent: str, every: float, listing: Listing) -> None:
    console = Console()
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            try:
                shown = _text(_view(agent, await _asked(session, agent)), listing, console.width)
            except CommandError as stop:
                shown = Text(str(stop))
            live.update(shown, refresh=True)
            await asyncio.sleep(every)


def _reason(error: Exception) -> str:
    """Return the reason why an agent did not answer."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    return plainly(cause)


def _checked(agent: str) -> str:
    """Return the URL of an agent. Raises CommandError for an invalid URL."""
    try:
        parts = urlsplit(agent)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return agent
    except ValueError:
        pass
    raise CommandError(Exit.USAGE, f"--agent {agent!r}: write http://HOST:PORT, such as {AGENT}")


async def _asked(session: aiohttp.ClientSession, agent: str) -> bytes:
    """Return the agent's answer. Raises CommandError."""
    url = _checked(agent).rstrip("/") + CONTAINERS
    try:
        async with session.get(url, allow_redirects=False) as response:
            if response.status != 200:
                raise CommandError(
                    Exit.FAILED, f"{url} answers {response.status}: is it a node's agent?"
                )
            return await read_whole(response.content, ANSWER_BYTES_MAX)
    except AnswerTooLong as error:
        raise CommandError(Exit.FAILED, f"{url} answers {error}") from error
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        raise CommandError(
            Exit.UNREACHABLE,
            f"{url}: {_reason(error)}; start `gpuledger agent` on the node, or give its URL with"
            " --agent",
        ) from error


def _view(agent: str, body: bytes) -> AgentAnswer:
    return _decoded(agent, body, AgentAnswer)


def _decoded(agent: str, body: bytes, form: type[T]) -> T:
    """Decode an agent's answer. Raises CommandError when another program answered."""
    try:
        return msgspec.json.decode(body, type=form)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise CommandError(Exit.FAILED, f"{agent} is not a node's agent: {error}") from error


def _text(view: AgentAnswer, listing: Listing, width: int) -> Text:
    """Return an answer as lines of a terminal; pods that bypass limits are red."""
    title = f"{view.node} at position {view.position}"
    if not view.containers:
        return Text(f"{title}\n{_NOTHING}")
    drifting = {str(drift.get("uid")) for drift in view.drifts}
    table = view_lines(view.containers, listing, width)
    shown = Text(f"{title}\n").append(f"{table.header}\n", "bold")
    for use, line in zip(view.containers, table.lines, strict=True):
        shown.append(f"{line}\n", "red" if use.uid in drifting else "")
    return shown
