"""The pages' own assets, at addresses that carry their hash: a browser asks for each once."""

from __future__ import annotations

from functools import cache

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from hub_server.errors import NotFound
from hub_server.web.pages import ASSETS, asset_url

TYPES = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8"}


async def asset(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in ASSETS or asset_url(name) != f"/static/{request.path_params['hash']}/{name}":
        raise NotFound(f"there is no asset '{name}' here")
    return Response(
        _content(name),
        media_type=TYPES[name.rpartition(".")[2]],
        headers={"Cache-Control": "public, max-age=31536000, immutable", "ETag": f'"{request.path_params["hash"]}"'},
    )


@cache
def _content(name: str) -> bytes:
    return ASSETS[name].read_bytes()


routes: list[BaseRoute] = [Route("/static/{hash}/{name}", asset, methods=["GET"])]
