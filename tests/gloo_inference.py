"""`GlooInference`: a server on this machine that really takes weights by gloo. Importing it skips without torch."""

from __future__ import annotations

import asyncio
import datetime
from typing import Any

from aiohttp import web
from inference_servers import FakeInference
from rl_policies import torch


class GlooInference(FakeInference):
    """Its worker takes weights by gloo, as vLLM's does with our engine."""

    def __init__(self, **options: Any) -> None:
        super().__init__(model="policy", **options)
        self.weights: dict[str, Any] = {}  # that came last
        self.joined = 0  # groups with a trainer
        self._group: Any = None
        self._agreed: Any = None

    async def _join(self, request: web.Request) -> Any:
        info = (await request.json())["init_info"]
        self._group = await asyncio.to_thread(self._form, info)
        self._agreed, self.joined = info, self.joined + 1
        return {}

    def _form(self, info: dict[str, Any]) -> Any:
        import torch.distributed as dist

        limit = datetime.timedelta(seconds=info["timeout_s"])
        store = dist.TCPStore(info["host"], info["port"], is_master=False, timeout=limit)
        store.add("joined", 1)
        self._store = store
        return dist.ProcessGroupGloo(store, info["rank_offset"], info["world_size"], limit)

    async def _update(self, request: web.Request) -> Any:
        if (await request.json())["update_info"].get("folder"):
            return await super()._update(request)
        if self._agreed is None:
            return web.json_response({"error": {"message": "no trainer is connected"}}, status=400)
        self.loads, self.state = self.loads + 1, "torn"
        try:
            self.weights = await asyncio.to_thread(self._receive)
        except RuntimeError as error:
            return web.json_response({"error": {"message": str(error)}}, status=500)
        self.state = "whole"
        return {}

    def _receive(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, shape, dtype in zip(*(self._agreed[key] for key in ("names", "shapes", "dtype_names")), strict=True):
            found[name] = torch.empty(shape, dtype=getattr(torch, dtype))
            self._group.broadcast(found[name].reshape(-1).view(torch.uint8), 0).wait()
        return found
