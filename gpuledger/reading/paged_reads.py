"""Paged reads: all pages of an answer as of one position, with a bound on the rows."""

from typing import Final, TypeVar

import msgspec

from gpuledger.cli.exit_codes import CommandError, Exit
from gpuledger.cli.progress import bar
from gpuledger.reading import reply_errors
from gpuledger.reading.ledger_queries import QueryAnswer
from gpuledger.reading.service_connection import ServiceConnection, ServiceReply
from projections.queries.query_scope import QueryScope

PAGE_ROWS: Final = 5_000
"""Most rows of one answer of the service."""

ROWS_MAX: Final = 250_000
"""Most rows of a question without a limit; a row takes about 2 KB of memory."""

PAGES_MAX: Final = 1_000
"""Most answers to one question, so that a server without an end does not keep the command."""

Row = TypeVar("Row")


class PagedQuestion(msgspec.Struct, frozen=True):
    """A question to a list of the service.

    `level` is the least version of the API that has all its parameters. The next page continues at
    the parameter `cursor`; the parameter `fixed` keeps it at the position of the first page. An
    answer that is not `of_log` has no position.
    """

    resource: str
    scope: QueryScope
    params: dict[str, str]
    cursor: str = "after"
    fixed: str = ""
    level: int = 1
    limit: int = 0
    of_log: bool = True


async def read_all(
    connection: ServiceConnection, question: PagedQuestion, kind: type[Row]
) -> tuple[QueryAnswer[Row], str]:
    """Return the rows of all pages, or up to the limit, and the place of the next one.

    Raises CommandError.
    """
    rows: list[Row] = []
    params = {**question.params, "cluster": question.scope.cluster}
    most = question.limit or ROWS_MAX
    position = head = 0
    with bar(f"reading {question.resource}") as progress:
        for _ in range(PAGES_MAX):
            params["limit"] = str(min(PAGE_ROWS, most - len(rows)))
            reply = await connection.get(question.resource, question.scope.namespace, params)
            page = rows_of(connection, reply, question, kind)
            rows += page
            if question.of_log and not position:
                position = _position(connection, reply, "position")
                head = _position(connection, reply, "head")
            more = reply.headers.get("gpuledger-next", "")
            progress(len(rows), 0)
            if not more or len(rows) >= most:
                break
            params[question.cursor] = more
            if question.fixed:
                params[question.fixed] = str(position)
        else:
            raise CommandError(
                Exit.FAILED,
                f"{connection.address.origin} has more than {PAGES_MAX} pages: ask for less with -n"
                " or --cluster",
            )
    if more and not question.limit:
        raise CommandError(
            Exit.FAILED,
            f"there are more than {ROWS_MAX} rows: ask for less with -n or --cluster",
        )
    return QueryAnswer(position, head, rows), more


def rows_of(
    connection: ServiceConnection, reply: ServiceReply, question: PagedQuestion, kind: type[Row]
) -> list[Row]:
    """Return the rows of an answer. Raises CommandError for any other answer."""
    if reply.status != 200:
        raise reply_errors.error_of(connection.address, reply, question.resource)
    level = reply.headers.get("gpuledger-api", "1")
    if level.isdigit() and int(level) < question.level:
        raise CommandError(
            Exit.FAILED,
            f"{connection.address.origin} is older than this command and does not support this"
            f" question about {question.resource}: upgrade it",
        )
    rows: list[Row] = decoded_reply(connection, reply, list[kind])  # type: ignore[valid-type]
    return rows


def decoded_reply(connection: ServiceConnection, reply: ServiceReply, kind: type[Row]) -> Row:
    """Return the body of an answer. Raises CommandError if it is not of this type."""
    try:
        return msgspec.json.decode(reply.body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CommandError(
            Exit.FAILED,
            f"{connection.address.origin} answered what this command cannot read ({error}): check"
            " that it is a gpuledger service of the version of this command",
        ) from error


def _position(connection: ServiceConnection, reply: ServiceReply, name: str) -> int:
    value = reply.headers.get(f"gpuledger-{name}", "")
    if not value.isascii() or not value.isdigit() or len(value) > 18:
        raise CommandError(
            Exit.FAILED,
            f"{connection.address.origin} answered without the header Gpuledger-{name.title()}:"
            " check that it is a gpuledger service, and that proxies keep its headers",
        )
    return int(value)
