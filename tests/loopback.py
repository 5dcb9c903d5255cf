"""What tests of whole programs share: an OpenAI-like server on this machine, and a folder to run `vf-eval` in."""

from __future__ import annotations

import asyncio
import os
import shlex
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aiohttp import web

ROOT = Path(__file__).parents[1]
USAGE = {"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14}


def end(loop: asyncio.AbstractEventLoop, runner: web.AppRunner) -> None:
    """Without waiting for requests that are still being answered."""
    loop.run_until_complete(runner.cleanup())
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.wait(left))
    loop.close()


class Loopback:
    """Answers chat completions with what `answer(body)` returns: a text, a message, or a whole HTTP response.

    A request is counted when it arrives, under its seed: each rollout has one of its own.
    """

    def __init__(self, answer: Callable[[dict[str, Any]], Any], models: tuple[str, ...] = ("m",)) -> None:
        self.answer, self.models = answer, models
        self.delay_s: Callable[[], float] = lambda: 0.0
        self.requests: Counter[int] = Counter()
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        assert self._ready.wait(100)

    def __enter__(self) -> Loopback:
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(100)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        app = web.Application(client_max_size=1 << 26)
        app.router.add_get("/v1/models", self._list)
        app.router.add_post("/v1/chat/completions", self._chat)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        self._loop.run_until_complete(runner.setup())
        self._loop.run_until_complete(web.TCPSite(runner, "127.0.0.1", 0).start())
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        self._ready.set()
        self._loop.run_forever()
        end(self._loop, runner)

    async def _list(self, request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": name} for name in self.models]})

    async def _chat(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.requests[body.get("seed")] += 1
        await asyncio.sleep(self.delay_s())
        message = self.answer(body)
        if isinstance(message, web.Response):
            return message
        if isinstance(message, str):
            message = {"role": "assistant", "content": message}
        reason = "tool_calls" if message.get("tool_calls") else "stop"
        choice = {"index": 0, "message": message, "finish_reason": reason}
        return web.json_response({"id": "x", "model": body["model"], "choices": [choice], "usage": USAGE})


class Desk:
    """A folder to work in, where `vf-eval` is a program and the modules in `modules` can be imported."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.modules = folder, folder / "modules"
        programs = folder / "bin"
        self.modules.mkdir()
        programs.mkdir()
        program = programs / "vf-eval"
        program.write_text(f"#!{sys.executable}\nfrom verifiers.cli.main import eval_main\neval_main()\n")
        program.chmod(0o755)
        self.variables = outside_variables() | {
            "PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', '')}",
            "PYTHONPATH": f"{ROOT}{os.pathsep}{self.modules}",
        }

    def write(self, module: str, text: str) -> None:
        (self.modules / f"{module}.py").write_text(text)

    def start(self, command: str, **variables: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            shlex.split(command),
            cwd=self.folder,
            env=self.variables | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
        )

    def run(self, command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        process = self.start(command, **variables)
        out, err = process.communicate(timeout=250)
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    def saved_run(self) -> Path:
        (folder,) = self.folder.glob("outputs/evals/*/*")
        return folder


def outside_variables() -> dict[str, str]:
    """This process's variables without those that change what the programs do."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("OPENAI", "VF_", "COV", "PYTHONPATH"))}
    return kept | {"OMP_NUM_THREADS": "1"}


def wait_until(is_so: Callable[[], bool], what: str, limit_s: float = 60.0) -> None:
    deadline = time.monotonic() + limit_s
    while not is_so():
        assert time.monotonic() < deadline, f"{what} did not come"
        time.sleep(0.005)
