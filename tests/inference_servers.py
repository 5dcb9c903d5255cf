"""`FakeInference`: a model server on this machine with the admin routes of one of three dialects, and faults to order.

It makes one token each `token_s` seconds, none while it is paused, and tells which weights made which.
"""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

LOGITS = [3.0, 2.5, 1.0, 0.5, 0.0, -1.0, -2.0]
Answer = web.StreamResponse | dict[str, Any]


class FakeInference:
    """`async with FakeInference() as server:`; `server.asked` lists what it was asked, in order."""

    def __init__(
        self,
        *,
        dialect: str = "vllm",
        model: str = "m",
        processed: bool = True,
        token_ids: bool = True,
        scale_out: bool = True,
        transfer: bool = True,
        extension: bool = True,
        own_temperature: float = 1.0,
        port: int = 0,
    ) -> None:
        self.dialect, self.model, self.processed, self.token_ids = dialect, model, processed, token_ids
        self.scale_out, self.transfer, self.extension = scale_out, transfer, extension
        self.own_temperature = own_temperature
        self.port = port
        self.version = "default"
        self.state = "whole"
        self.engine = "VerifiersEngine"
        self.loads = 0  # begun
        self.since = 0  # of its workers; another number is another server at the same address
        self.load_s = 0.0
        self.worker = asyncio.Lock()  # it does one thing after the other
        self.is_paused = False
        self.is_updating = False
        self.running = 0
        self.token_s = 0.002
        self.asked: list[str] = []
        self.bodies: defaultdict[str, list[Any]] = defaultdict(list)
        self.faults: defaultdict[str, list[Any]] = defaultdict(list)  # path -> what is done instead, in turn
        self.aborts = 0

    async def __aenter__(self) -> FakeInference:
        app = web.Application(client_max_size=1 << 26, middlewares=[self._listen])
        get, post = app.router.add_get, app.router.add_post
        get("/health", self._nothing)
        get("/v1/models", self._models)
        get("/metrics", self._metrics)
        post("/v1/completions", self._completions)
        post("/inference/v1/generate", self._generate)
        if self.dialect in ("vllm", "rpc"):
            post("/pause", self._pause)
            post("/resume", self._resume)
            get("/is_paused", self._told_paused)
            get("/weight_info", self._told_version)
            post("/update_weight_version", self._set_version)
            post("/collective_rpc", self._rpc)
            post("/reset_prefix_cache", self._nothing)
            post("/abort_requests", self._abort)
            get("/get_world_size", self._world)
        if self.dialect == "vllm":
            post("/init_weight_transfer_engine", self._join)
            post("/start_weight_update", self._start)
            post("/update_weights", self._update)
            post("/finish_weight_update", self._finish)
        if self.dialect == "report":
            post("/update_weights", self._update_report)
            post("/reload_weights", self._nothing)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True).start()
        self.port = self._runner.addresses[0][1]
        self.root = f"http://127.0.0.1:{self.port}"
        self.url = f"{self.root}/v1"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    def admin_asked(self) -> list[str]:
        """Without the questions of a probe or a watch."""
        dull = ("/health", "/metrics", "/v1/", "/is_paused", "/weight_info", "/inference")
        return [path for path in self.asked if not path.startswith(dull)]

    @web.middleware
    async def _listen(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[Answer]]
    ) -> web.StreamResponse:
        path = request.path
        if request.method == "POST":
            self.asked.append(path if not request.query_string else f"{path}?{request.query_string}")
            self.bodies[path].append(await request.json() if request.can_read_body else None)
        if (request.method == "POST" or path in ("/health", "/metrics")) and self.faults[path]:
            fault = self.faults[path].pop(0)
            if fault == "hang":
                await asyncio.sleep(3600)
            if fault == "reset":
                assert request.transport is not None
                request.transport.abort()
            if isinstance(fault, tuple):
                return web.json_response({"error": {"message": fault[1]}}, status=fault[0])
            if callable(fault):
                fault()
        answer = await handler(request)
        return web.json_response(answer) if isinstance(answer, dict) else answer

    async def _nothing(self, request: web.Request) -> Answer:
        return {}

    async def _join(self, request: web.Request) -> Answer:
        return {}

    async def _models(self, request: web.Request) -> Answer:
        return {"data": [{"id": self.model, "max_model_len": 4096}]}

    async def _metrics(self, request: web.Request) -> Answer:
        return web.Response(
            text='# HELP vllm:num_requests_running r\nvllm:num_requests_running{engine="0",model_name="m"} '
            f'{self.running}\nvllm:num_requests_waiting{{engine="0"}} 2.0\nvllm:kv_cache_usage_perc{{engine="0"}} 0.5\n'
        )

    async def _completions(self, request: web.Request) -> Answer:
        body = await request.json()
        temperature = body.get("temperature", self.own_temperature) if self.processed else 1.0
        scaled = [value / temperature for value in LOGITS]
        whole = math.log(sum(map(math.exp, scaled)))
        tops = {f"t{i}": value - whole for i, value in enumerate(scaled[: body["logprobs"]])}
        choice = {"text": "t0", "finish_reason": "length", "logprobs": {"top_logprobs": [tops]}}
        if self.token_ids:
            choice |= {"token_ids": [0], "prompt_token_ids": [1, 2]}
        return {"choices": [choice]}

    async def _generate(self, request: web.Request) -> Answer:
        if not self.scale_out:
            return web.json_response({"error": "closed"}, status=403)
        body = await request.json()
        if not body["token_ids"]:
            return web.json_response({"error": "no ids"}, status=400)
        spans: list[dict[str, Any]] = []
        for number in range(body["sampling_params"]["max_tokens"]):
            await asyncio.sleep(self.token_s)
            while self.is_paused:
                await asyncio.sleep(self.token_s)
            if not spans or spans[-1]["version"] != self.version:
                spans.append({"version": self.version, "start": number, "end": number})
            spans[-1]["end"] = number + 1
        ids = [7] * body["sampling_params"]["max_tokens"]
        logprobs = {"content": [{"logprob": -1.0}] * len(ids)}
        choice = {"token_ids": ids, "finish_reason": "length", "logprobs": logprobs, "weight_versions": spans}
        return {"request_id": "r", "choices": [choice]}

    async def _pause(self, request: web.Request) -> Answer:
        assert request.query.get("mode") == "keep"
        self.is_paused = True
        return {"status": "paused"}

    async def _resume(self, request: web.Request) -> Answer:
        self.is_paused = False
        return {"status": "resumed"}

    async def _told_paused(self, request: web.Request) -> Answer:
        return {"is_paused": self.is_paused}

    async def _told_version(self, request: web.Request) -> Answer:
        return {"weight_version": self.version}

    async def _set_version(self, request: web.Request) -> Answer:
        self.version = (await request.json())["new_version"]
        return {"success": True}

    async def _abort(self, request: web.Request) -> Answer:
        self.aborts += 1
        return {"aborted": self.running}

    async def _world(self, request: web.Request) -> Answer:
        return {"world_size": 1}

    async def _rpc(self, request: web.Request) -> Answer:
        body = await request.json()
        if body["method"] == "weight_state" and self.extension:
            async with self.worker:
                told = {"state": self.state, "loads": self.loads, "since": self.since}
                return {"results": [{"engine": self.engine} | told]}
        if body["method"] == "reload_weights" or (body["method"] == "reload_whole" and self.extension):
            return {"results": [None]}
        return _worker_error(f"'Worker' object has no attribute '{body['method']}'")

    async def _start(self, request: web.Request) -> Answer:
        if self.is_updating:
            return _worker_error("start_weight_update called while a weight update is already active.")
        self.is_updating = True
        return {}

    async def _update(self, request: web.Request) -> Answer:
        if "update_info" not in await request.json():
            return web.json_response({"error": {"message": "update_info: Field required"}}, status=400)
        async with self.worker:
            self.loads += 1
            await asyncio.sleep(self.load_s)
        return {}

    async def _finish(self, request: web.Request) -> Answer:
        if not self.transfer:
            return _worker_error("Weight transfer not configured. Please set weight_transfer_config.")
        if not self.is_updating:
            return _worker_error("finish_weight_update called without a matching start_weight_update.")
        self.is_updating = False
        if version := (await request.json()).get("weight_version"):
            self.version = version
        return {}

    async def _update_report(self, request: web.Request) -> Answer:
        if "weight_dir" not in await request.json():
            return web.json_response({"error": {"message": "weight_dir: Field required"}}, status=422)
        return {"status": "ok"}


def _worker_error(text: str) -> web.Response:
    """In the frame that vLLM puts around it."""
    message = f"Call to collective_rpc method failed: Worker failed with error '{text}', please check the stack trace"
    return web.json_response({"error": {"message": message, "code": 500}}, status=500)
