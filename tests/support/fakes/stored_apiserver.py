"""Stored API server: objects over real HTTP that are listed by labels, merged and deleted."""

import json
import re
from collections.abc import Callable
from typing import Any, Final

from aiohttp import web

Stored = dict[str, Any]

_REQUIREMENT: Final = re.compile(r"([^,=() ]+)(?:=([^,]+)| in \(([^)]*)\))")
_NAMESPACES: Final = re.compile(r"/namespaces/[^/]+(?=/)")


class StoredApiServer:
    """Objects by path. `failing` has answers instead, by method and beginning of the path.

    `written` is called after each write, with method and path. Writes are merge patches, and the
    deletions of a strategic patch in `schedulingGates`.
    """

    def __init__(self) -> None:
        self.objects: dict[str, Stored] = {}
        self.failing: dict[tuple[str, str], tuple[int, Any]] = {}
        self.asked: list[tuple[str, str]] = []
        self.written: Callable[[str, str], None] = lambda _method, _path: None

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        return app

    def put(self, collection: str, name: str, **parts: Any) -> str:
        """Store an object; return its path. `metadata` is merged with name and namespace."""
        space = re.search(r"/namespaces/([^/]+)/", f"{collection}/")
        given = {"name": name, "namespace": space[1] if space else "", "uid": name}
        meta = given | {"resourceVersion": "7"} | parts.pop("metadata", {})
        path = f"{collection}/{name}"
        self.objects[path] = {"metadata": meta, **parts}
        return path

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        method, path = request.method, request.path
        self.asked.append((method, path))
        for (failing, prefix), (status, value) in self.failing.items():
            if method == failing and path.startswith(prefix):
                return web.json_response(value, status=status)
        if method == "GET":
            return web.json_response(self._list(path, request.query.get("labelSelector", "")))
        answer = await self._write(method, path.removesuffix("/status"), await request.text())
        self.written(method, path)
        return answer

    def _list(self, path: str, selector: str) -> Stored:
        items = [
            stored
            for place, stored in self.objects.items()
            if path in (_parent(place), _NAMESPACES.sub("", _parent(place)))
            and _is_selected(stored["metadata"].get("labels") or {}, selector)
        ]
        return {"metadata": {"resourceVersion": "9"}, "items": items}

    async def _write(self, method: str, path: str, body: str) -> web.Response:
        if path not in self.objects:
            return web.json_response({"details": {"name": "x"}}, status=404)
        if method == "DELETE":
            del self.objects[path]
        else:
            self.objects[path] = _merged(self.objects[path], json.loads(body))
        return web.json_response({})


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _is_selected(labels: dict[str, str], selector: str) -> bool:
    return all(
        labels.get(key) in (value, *values.split(","))
        for key, value, values in _REQUIREMENT.findall(selector)
    )


def _merged(old: Any, patch: Any) -> Any:
    if isinstance(patch, list):
        gone = {item["name"] for item in patch if item.get("$patch") == "delete"}
        return [item for item in old if item["name"] not in gone]
    if not isinstance(patch, dict):
        return patch
    new = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            new.pop(key, None)
        else:
            new[key] = _merged(new.get(key), value)
    return new
