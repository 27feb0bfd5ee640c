"""How one client shares its connections between watches and everything else."""

import asyncio
import contextlib
import time

import pytest
from aiohttp import web
from support.fakes.apiserver import client_on_loopback, on_loopback

from ledger.kube.client import api_client as clients
from ledger.kube.client.api_client import ApiClient


async def test_watches_take_no_connection_from_reads_and_writes(answers, tmp_path, monkeypatch):
    monkeypatch.setattr(clients, "CONNECTIONS_MAX", 1)

    async def silence(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"{}\n")
        await asyncio.Event().wait()
        return response

    answers.by_path |= {"/watched": silence, "/read": {"a": 1}}
    async with contextlib.AsyncExitStack() as stack:
        kubeconfig = await stack.enter_async_context(on_loopback(answers.app(), tmp_path))
        client = await stack.enter_async_context(await ApiClient.connect(kubeconfig))
        for _ in range(3):
            watch = await stack.enter_async_context(
                contextlib.aclosing(await client.watch("/watched", {"watch": "1"}))
            )
            assert await asyncio.wait_for(anext(watch.chunks()), 10) == b"{}\n"
        assert await asyncio.wait_for(client.get("/read"), 10) == b'{"a": 1}'


async def test_an_answer_shows_how_far_this_clock_is_ahead(answers, tmp_path):
    dates = ["Sat, 21 Nov 2020 12:00:00 GMT", "no date"]

    async def dated(request: web.Request) -> web.Response:
        return web.json_response({}, headers={"Date": dates.pop(0)})

    answers.by_path["/dated"] = dated
    async with client_on_loopback(answers.app(), tmp_path) as client:
        assert client.clock_ahead == 0.0
        await client.get("/dated")
        ahead = client.clock_ahead
        assert ahead == pytest.approx(time.time() - 1605960000, abs=600)
        await client.get("/dated")
        assert client.clock_ahead == ahead, "an answer without a date changes nothing"
