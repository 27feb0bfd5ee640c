"""List server: lists a fleet as an API server does, page by page, over HTTP on loopback.

It serves only the lists that a recount reads. Below `/changed`, one pod in a hundred is replaced by
another.
"""

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from aiohttp import web

from tests.bench.harness.fresh_process import wait_for_go
from tests.bench.objects.fleet import VERSION, Fleet

CHANGED_SHARE: Final = 100
"""One pod in so many is another one below `/changed`."""

_LATER: Final = VERSION + 1

Make = Callable[[int], bytes]
"""Makes the nth object of a list."""


async def serve(fleet: dict[str, int], port: int) -> dict[str, float]:
    """Serve until `wait_for_go` returns."""
    known = Fleet(**fleet)
    app = web.Application()
    for prefix, pod in (("", _pods(known)), ("/changed", _changed_pods(known))):
        app.router.add_get(f"{prefix}/api/v1/pods", _pages(pod, known.roots * known.pods))
        for name, make in (("deployments", known.deployment), ("replicasets", known.replica_set)):
            app.router.add_get(f"{prefix}/apis/apps/v1/{name}", _pages(make, known.roots))
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await wait_for_go()
    await runner.cleanup()
    return {}


def write_kubeconfig(path: Path, address: str) -> None:
    """Write a kubeconfig file, which is YAML and so may be JSON, that leads to an address."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
        "clusters": [{"name": "here", "cluster": {"server": address}}],
        "users": [{"name": "me", "user": {"token": "none"}}],
    }
    path.write_text(json.dumps(config))


def _pods(fleet: Fleet) -> Make:
    return lambda number: fleet.pod(*divmod(number, fleet.pods))


def _changed_pods(fleet: Fleet) -> Make:
    def make(number: int) -> bytes:
        generation = "a" if number % CHANGED_SHARE else "b"
        return fleet.pod(*divmod(number, fleet.pods), generation)

    return make


def _pages(make: Make, count: int) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def page(request: web.Request) -> web.Response:
        first, limit = int(request.query.get("continue", 0)), int(request.query["limit"])
        end = min(first + limit, count)
        following = f',"continue":"{end}"' if end < count else ""
        body = b'{"metadata":{"resourceVersion":"%d"%s},"items":[%s]}' % (
            _LATER,
            following.encode(),
            b",".join(map(make, range(first, end))),
        )
        return web.Response(body=body, content_type="application/json")

    return page
