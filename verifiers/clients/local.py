"""`LocalModel`: a real small instruct model served on this machine, for a first run without a key or a network."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, Any

from verifiers.clients.local_weights import SMOLLM2, find_weights
from verifiers.errors import SetupError

SERVER_FILE = Path(__file__).with_name("local_server.py")
CLOSE_WAIT_S = 5.0


class LocalModel:
    """llama.cpp's own HTTP server in a child process, on the loopback address and a free port.

        with LocalModel() as local:
            client = vf.ClientConfig(api_base_url=local.base_url)
            results = env.evaluate_sync(client, local.model, num_examples=5)

    The weights are fetched on the first start (see `local_weights`). The server answers `slots` requests at a time and
    queues the rest; prompt and answer share `slot_tokens`. It ends with `close()`, and with this process however that
    ends. `start()` blocks for about a second; `async with` does it on a thread.
    """

    def __init__(
        self, *, slots: int = 8, slot_tokens: int = 2048, threads: int | None = None, start_timeout_s: float = 120.0
    ) -> None:
        self.slots = slots
        self.slot_tokens = slot_tokens
        self.threads = threads  # None: one for each core
        self.start_timeout_s = start_timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None
        self._address: str | None = None
        self._model: str | None = None

    @property
    def base_url(self) -> str:
        return f"{self._started(self._address)}/v1"

    @property
    def model(self) -> str:
        """The name to ask for; the server answers to it alone in `/v1/models`."""
        return self._started(self._model)

    def start(self) -> None:
        """Fetch the weights if need be, start the server and wait until it answers. Does nothing when it runs."""
        if self._process is not None:
            return
        if importlib.util.find_spec("xllamacpp") is None:
            raise SetupError(
                "the local model needs llama.cpp, and the package `xllamacpp` is not installed. "
                f"Try: {sys.executable} -m pip install xllamacpp"
            )
        weights = find_weights()
        model = SMOLLM2.model if weights.name == SMOLLM2.file else weights.stem
        try:
            self._launch(weights, model)
            self._address = self._wait_until_ready()
        except BaseException:
            self.close()
            raise
        self._model = model

    def close(self) -> None:
        """End the server; a second call does nothing."""
        process, self._process = self._process, None
        errors, self._errors = self._errors, None
        self._address = self._model = None
        if process is not None:
            assert process.stdin and process.stdout
            process.stdin.close()  # what the server waits for
            try:
                process.wait(CLOSE_WAIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()
        if errors is not None:
            errors.close()

    def __enter__(self) -> LocalModel:
        self.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    async def __aenter__(self) -> LocalModel:
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(self, *_: Any) -> None:
        await asyncio.to_thread(self.close)

    def _launch(self, weights: Path, model: str) -> None:
        # -P: the file's own folder must not become an import path, its neighbours would hide modules of the same name
        command = [sys.executable, "-P", str(SERVER_FILE), str(weights), "--alias", model]
        command += ["--slots", str(self.slots), "--slot-tokens", str(self.slot_tokens)]
        if self.threads is not None:
            command += ["--threads", str(self.threads)]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed by close())
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,  # Ctrl-C is for us: answers on their way are still wanted
        )

    def _wait_until_ready(self) -> str:
        """The server's address, from the one line it writes."""
        assert self._process and self._process.stdout
        output = self._process.stdout.fileno()
        deadline = time.monotonic() + self.start_timeout_s
        line = b""
        with selectors.DefaultSelector() as selector:
            selector.register(output, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise SetupError(
                        f"the local model's server was not ready after {self.start_timeout_s:g} s{self._last_words()}"
                    )
                chunk = os.read(output, 4096)
                if not chunk:  # it ended
                    raise SetupError(
                        f"the local model's server ended with {self._process.wait()} at start{self._last_words()}"
                    )
                line += chunk
        return json.loads(line)["address"]

    def _last_words(self) -> str:
        assert self._errors is not None
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors.read().decode(errors="replace").splitlines() if line.strip()]
        told = list(dict.fromkeys(lines[:1] + lines[-2:]))  # llama.cpp's first complaint is the cause, the rest follows
        return ": " + " | ".join(told) if told else ""

    @staticmethod
    def _started(value: str | None) -> str:
        if value is None:
            raise RuntimeError("the local model is not running: call start() first")
        return value
