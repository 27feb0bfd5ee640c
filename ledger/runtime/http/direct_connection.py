"""Direct connection: serves plain requests of its endpoints without ASGI.

A request is plain if it is a POST of JSON with a length within the bound, over HTTP/1.1, without
`Expect`, codings and upgrades, if its client has the right to the path, and if no other request of
the connection is in progress. The application serves all other requests, and refuses those that
must be refused. So the direct path has no rule of its own.

A body that finds no room in the budget is handed over to the application, which waits for room. The
deadline of a body is compared by `check`, together with those of the connection.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final, cast

import structlog
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from ledger.runtime.http.connection_deadlines import HttpConnection
from ledger.runtime.http.direct_endpoints import DirectEndpoint, DirectEndpoints
from ledger.runtime.http.direct_request import INTERNAL_ERROR, DirectRequest, plain_length
from ledger.runtime.http.json_endpoint import BEGUN, Reply, late_refusal
from ledger.tasks.eager_task import EagerTask

_log: Final = structlog.get_logger("ledger.runtime")


class DirectConnection(HttpConnection):
    """One connection. `endpoints` are those of its server, None: the application serves all."""

    endpoints: DirectEndpoints | None = None

    _usable: Mapping[bytes, DirectEndpoint] = {}
    _arriving: DirectRequest | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn
        """Decide once which endpoints the client may use."""
        super().connection_made(transport)
        if self.endpoints is not None:
            peer = self.client[0] if self.client is not None else ""
            self._usable = self.endpoints.of_connection(self.subject, peer)

    def connection_lost(self, exc: Exception | None) -> None:
        """Release the bytes of an incomplete request; a complete one is decided all the same."""
        if self._arriving is not None:
            self._arriving.end(self.loop.time())
            self._arriving = None
        super().connection_lost(exc)

    def on_headers_complete(self) -> None:
        """Begin a direct request, or pass the request to the application."""
        request = self._plain_request()
        if request is None:
            super().on_headers_complete()
            return
        self.head_complete()
        self._arriving = request
        # It has the attributes that uvicorn reads.
        self.cycle = cast("RequestResponseCycle", request)

    def on_body(self, body: bytes) -> None:
        """Take a part of a body."""
        request = self._arriving
        if request is None:
            super().on_body(body)
        elif not request.takes(body):
            self._hand_over(request)
        elif request.held.end_reading is None:
            request.held.end_reading = lambda _: self._refuse_late(request)

    def on_message_complete(self) -> None:
        """Answer a request whose body is complete."""
        request, self._arriving = self._arriving, None
        if request is None:
            super().on_message_complete()
            return
        self.whole = True
        request.held.arrived()
        request.held.end_reading = None
        reply = request.endpoint.reply(request.body, request.until)
        task = EagerTask(reply, lambda *ended: self._answer(request, *ended))
        self.tasks.add(cast("asyncio.Task[Any]", task))  # the end of the server waits for it
        task.start()

    def check(self, now: float) -> None:
        """Close the connection, or refuse an incomplete body, if a deadline has passed."""
        request = self._arriving
        if request is not None and now >= request.until and not self.transport.is_closing():
            self._refuse_late(request)
        super().check(now)

    def _plain_request(self) -> DirectRequest | None:
        """Return the direct request whose head was read, None if the application serves it."""
        usable = self._usable.get(self.url.partition(b"?")[0])
        if usable is None or self.flow.write_paused:
            return None
        if self.cycle is not None and not self.cycle.response_complete:
            return None  # uvicorn keeps the order of answers
        parser = self.parser
        if parser.get_method() != b"POST" or parser.get_http_version() != "1.1":
            return None
        length = plain_length(self.headers, usable)
        if not length:
            return None
        keep_alive = bool(parser.should_keep_alive())
        return DirectRequest(usable.endpoint, length, now=self.loop.time(), keep_alive=keep_alive)

    def _hand_over(self, request: DirectRequest) -> None:
        """Let the application read a body that finds no room now, because it waits for room.

        The room that the body has stays reserved, and its deadline stays.
        """
        body, self._arriving = request.body, None
        request.held.end_reading = None
        self.cycle = cast("RequestResponseCycle", None)  # no request is in progress
        self.scope[BEGUN] = request.begun  # type: ignore[typeddict-unknown-key]
        super().on_headers_complete()
        self.cycle.keep_alive = request.keep_alive
        super().on_body(body)

    def _refuse_late(self, request: DirectRequest) -> None:
        """Refuse an incomplete body that is late, or that gave its room to others."""
        self._arriving = None
        late = late_refusal(request.held, whole=False)
        self._finish(request, Reply(late.status, late.body, late.headers))

    def _answer(
        self,
        request: DirectRequest,
        task: EagerTask[Reply],
        reply: Reply | None,
        error: BaseException | None,
    ) -> None:
        """Answer a request with the reply of its endpoint, or report a defect."""
        self.tasks.discard(cast("asyncio.Task[Any]", task))
        if reply is None:
            _log.error("request_met_a_defect", exc_info=error)
            request.keep_alive = False
        self._finish(request, reply or INTERNAL_ERROR)

    def _finish(self, request: DirectRequest, reply: Reply) -> None:
        """Write the reply, and continue with the connection."""
        request.end(self.loop.time())
        if self.transport.is_closing():
            return
        self.transport.write(request.answer_bytes(reply, self.server_state.default_headers))
        if not request.keep_alive:
            self.transport.close()
        self.on_response_complete()
