"""Two small environments, a game and a box of tools, on a server that speaks OpenEnv's protocol.

`PlainServer` speaks it by aiohttp, in this process. Those of `RealHost` are made with the package of OpenEnv itself, in
a process of the interpreter that has it: this one, or the one in VF_TEST_OPENENV_PYTHON. Both write a line for each
thing that happens into a file. Run as a program, this module is that process.
"""

from __future__ import annotations

import asyncio
import base64
import importlib.util
import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

REAL_PING_S, REAL_PONG_S = 1.0, 2.0  # of the real servers; the usual 20 s would take long to test
DOT = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()


@dataclass(frozen=True)
class Options:
    """How a server is to be."""

    kind: str = "number"  # or "tools"
    max_sessions: int = 4
    ping_s: float = 20.0  # of a plain server: a client that answers no ping is given up after half of it
    is_seeded: bool = True  # resets tell the seed
    is_paid: bool = True  # steps give rewards
    log: str = os.devnull

    def note(self, line: str) -> None:
        with open(self.log, "a") as file:
            file.write(f"{line}\n")


class Number:
    """Guess it: the seed tells which. 13 breaks the game, 77 takes long."""

    resets = 0

    def __init__(self, options: Options) -> None:
        self.options, self.steps = options, 0
        options.note("opened")

    def reset(self, seed: int) -> dict[str, Any]:
        Number.resets += 1
        self.secret, self.steps = seed % 9 + 1, 0
        return {"text": f"Episode {seed if self.options.is_seeded else Number.resets}. Guess from 1 to 9."}

    def step(self, number: int) -> tuple[dict[str, Any], float | None, bool]:
        self.options.note(f"step {number}")
        self.steps += 1
        if number == 13:
            raise RuntimeError("the dice fell off the table")
        if number == 77:
            time.sleep(3)
        is_right = number == self.secret
        reward = (1.0 if is_right else -0.25) if self.options.is_paid else None
        return {"text": "Right." if is_right else "Too low." if number < self.secret else "Too high."}, reward, is_right

    def close(self) -> None:
        self.options.note("closed")


def earned(tool: str, has_failed: bool, options: Options) -> float | None:
    return {"add": 0.5, "finish": 1.0}.get(tool, 0.0) * (not has_failed) if options.is_paid else None


# ---- without the package ----


class Guess(BaseModel):
    model_config = ConfigDict(extra="forbid")
    number: int = Field(ge=0)
    metadata: dict[str, Any] = {}


NUMBER_SCHEMA = Guess.model_json_schema()
TOOLS_SCHEMA = {
    "type": "object",
    "properties": {
        "type": {"const": "call_tool", "default": "call_tool"},
        "tool_name": {"type": "string"},
        "arguments": {"type": "object"},
    },
    "required": ["tool_name"],
}
INTEGERS = {"type": "object", "properties": {n: {"type": "integer"} for n in "ab"}, "required": ["a", "b"]}
NOTHING = {"type": "object", "properties": {}}
TOOLS = [
    {"name": "add", "description": "Add two numbers.", "input_schema": INTEGERS},
    {"name": "fail", "description": "Fail.", "input_schema": NOTHING},
    {"name": "draw", "description": "Draw a dot.", "input_schema": NOTHING},
    {"name": "finish", "description": "End the episode.", "input_schema": NOTHING},
]


class PlainServer:
    """In a thread. `url` is where it is."""

    def __init__(self, port: int = 0, **options: Any) -> None:
        self.options, self._open, self._port = Options(**options), 0, port
        self._ready, self._loop = threading.Event(), asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        assert self._ready.wait(100)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(100)

    def _serve(self) -> None:
        from aiohttp import web

        app = web.Application()
        app.router.add_get("/ws", self._session)
        app.router.add_get("/schema", self._schema)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        self._loop.run_until_complete(runner.setup())
        self._loop.run_until_complete(self._site(runner).start())
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        self._ready.set()
        self._loop.run_forever()
        self._loop.run_until_complete(runner.cleanup())
        for task in (left := asyncio.all_tasks(self._loop)):  # which still play
            task.cancel()
        if left:
            self._loop.run_until_complete(asyncio.wait(left))
        self._loop.close()

    def _site(self, runner: Any) -> Any:
        """A port that is asked for is held meanwhile, by SO_REUSEPORT, so that nobody else is given it."""
        from aiohttp import web

        return web.TCPSite(runner, "127.0.0.1", self._port, reuse_port=True if self._port else None)

    async def _schema(self, request: Any) -> Any:
        from aiohttp import web

        return web.json_response({"action": NUMBER_SCHEMA if self.options.kind == "number" else TOOLS_SCHEMA})

    async def _session(self, request: Any) -> Any:
        from aiohttp import web

        talk = web.WebSocketResponse(heartbeat=self.options.ping_s)
        await talk.prepare(request)
        if self._open >= self.options.max_sessions:
            full = {"message": "at capacity", "code": "CAPACITY_REACHED", "max_sessions": self.options.max_sessions}
            await talk.send_json({"type": "error", "data": full})
            await talk.close()
            return talk
        self._open += 1
        game = Number(self.options)
        try:
            async for message in talk:
                asked = json.loads(message.data)
                if asked["type"] == "close":
                    break
                await talk.send_json(await asyncio.to_thread(self._answer, game, asked))
        finally:
            self._open -= 1
            game.close()
        await talk.close()
        return talk

    def _answer(self, game: Number, asked: dict[str, Any]) -> dict[str, Any]:
        kind, data = asked["type"], asked.get("data") or {}
        try:
            if kind == "reset":
                shown = game.reset(data["seed"])
                return _observation({} if self.options.kind == "tools" else shown, None, False)
            if kind == "state":
                return {"type": "state", "data": {"episode_id": None, "step_count": game.steps}}
            if kind == "mcp":
                return {"type": "mcp", "data": {"jsonrpc": "2.0", "id": data["id"], "result": {"tools": TOOLS}}}
            if self.options.kind == "tools":
                return self._called(data["tool_name"], data["arguments"])
            return _observation(*game.step(Guess.model_validate(data).number))
        except ValidationError as error:
            told = {"message": "Invalid message", "code": "VALIDATION_ERROR", "errors": error.errors()}
            return {"type": "error", "data": told}
        except Exception as error:
            return {"type": "error", "data": {"message": str(error), "code": "EXECUTION_ERROR"}}

    def _called(self, tool: str, given: dict[str, Any]) -> dict[str, Any]:
        shown, error = None, None
        if tool == "add" and set(given) == {"a", "b"}:
            shown = {"content": [{"type": "text", "text": str(given["a"] + given["b"])}], "is_error": False}
        elif tool == "draw":
            shown = {"content": [{"type": "image", "data": DOT, "mime_type": "image/png"}], "is_error": False}
        elif tool == "finish":
            shown = {"content": [{"type": "text", "text": "done"}], "is_error": False}
        else:
            kinds = {"add": "invalid_args", "fail": "execution_error"}
            said = {"add": "Missing required argument", "fail": "out of ink"}.get(tool, f"Unknown tool: '{tool}'")
            error = {"error_type": kinds.get(tool, "tool_not_found"), "message": said}
        told = {"tool_name": tool, "result": shown, "error": error}
        return _observation(told, earned(tool, error is not None, self.options), tool == "finish")


def _observation(shown: dict[str, Any], reward: float | None, is_over: bool) -> dict[str, Any]:
    return {"type": "observation", "data": {"observation": shown, "reward": reward, "done": is_over}}


# ---- with it ----


def interpreter() -> str | None:
    """One that has OpenEnv."""
    if named := os.environ.get("VF_TEST_OPENENV_PYTHON"):
        return named
    return sys.executable if importlib.util.find_spec("openenv") is not None else None


class RealHost:
    """The process; a server in it takes a moment, the process many seconds."""

    def __init__(self) -> None:
        with closing(socket.create_server(("127.0.0.1", 0))) as free:
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self._process = subprocess.Popen(
            [interpreter() or "", str(Path(__file__)), str(port)],
            env=os.environ | {"ENABLE_WEB_INTERFACE": "false"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + 120
        while not self._answers():
            assert self._process.poll() is None, "the server ended"
            assert time.monotonic() < deadline, "the server did not start"
            time.sleep(0.1)

    def _answers(self) -> bool:
        with suppress(OSError), urllib.request.urlopen(f"{self.url}/openapi.json", timeout=60) as reply:
            return reply.status == 200
        return False

    def serve(self, options: Options) -> str:
        """Starts a server in it; returns its address."""
        headers = {"Content-Type": "application/json"}
        asked = urllib.request.Request(f"{self.url}/servers", json.dumps(vars(options)).encode(), headers)
        with urllib.request.urlopen(asked, timeout=100) as reply:
            return f"{self.url}{json.load(reply)}"

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(100)


def host(port: int) -> None:
    import uvicorn
    from fastapi import FastAPI  # pyright: ignore
    from openenv.core.env_server import create_app  # pyright: ignore

    app = FastAPI()

    @app.post("/servers")
    def add(options: dict[str, Any]) -> str:
        wanted, path = Options(**options), f"/{len(app.routes)}"
        made = _number_classes(wanted) if wanted.kind == "number" else _tools_classes(wanted)
        app.mount(path, create_app(*made, max_concurrent_envs=wanted.max_sessions))
        return path

    uvicorn.run(
        app,
        host="127.0.0.1",
        port=port,
        log_level="error",
        ws_ping_interval=REAL_PING_S,
        ws_ping_timeout=REAL_PONG_S,
    )


def _number_classes(options: Options) -> tuple[type, type, type]:
    from openenv.core.env_server import Action, Environment, Observation, State  # pyright: ignore

    class Guess(Action):
        number: int = Field(ge=0)

        @field_validator("number")
        @classmethod
        def no_beast(cls, number: int) -> int:
            if number == 666:
                raise ValueError("not that one")
            return number

    class Told(Observation):
        text: str = ""

    class Game(Environment):
        SUPPORTS_CONCURRENT_SESSIONS = True

        def __init__(self) -> None:
            super().__init__()
            self.game = Number(options)

        def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> Told:
            return Told(**self.game.reset(seed or 0))

        def step(self, action: Guess, timeout_s: float | None = None, **kwargs: Any) -> Told:
            shown, reward, is_over = self.game.step(action.number)
            return Told(**shown, reward=reward, done=is_over)

        @property
        def state(self) -> State:
            return State(step_count=self.game.steps)

        def close(self) -> None:
            self.game.close()

    return Game, Guess, Told


def _tools_classes(options: Options) -> tuple[type, type, type]:
    from fastmcp import FastMCP  # pyright: ignore
    from fastmcp.utilities.types import Image  # pyright: ignore
    from openenv.core.env_server import Observation, State  # pyright: ignore
    from openenv.core.env_server.mcp_environment import MCPEnvironment  # pyright: ignore
    from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation  # pyright: ignore

    box = FastMCP("box")

    @box.tool()
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @box.tool()
    def fail() -> str:
        """Fail."""
        raise RuntimeError("out of ink")

    @box.tool()
    def draw():  # a type of this function means nothing to those who read annotations as text
        """Draw a dot."""
        return Image(data=base64.b64decode(DOT), format="png")

    @box.tool()
    def finish() -> str:
        """End the episode."""
        return "done"

    class Tools(MCPEnvironment):
        SUPPORTS_CONCURRENT_SESSIONS = True

        def __init__(self) -> None:
            super().__init__(box)
            options.note("opened")

        def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> Observation:
            return Observation()

        def _step_impl(self, action: Any, timeout_s: float | None = None, **kwargs: Any) -> Observation:
            return Observation()

        async def step_async(self, action: Any, timeout_s: float | None = None, **kwargs: Any) -> Observation:
            told = await super().step_async(action, timeout_s=timeout_s, **kwargs)
            told.reward = earned(action.tool_name, told.error is not None, options)
            told.done = action.tool_name == "finish"
            return told

        @property
        def state(self) -> State:
            return State()

        def close(self) -> None:
            super().close()
            options.note("closed")

    return Tools, CallToolAction, CallToolObservation


if __name__ == "__main__":
    host(int(sys.argv[1]))
