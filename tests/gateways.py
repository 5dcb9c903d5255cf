"""Gateways in processes of their own, as `vf-sandbox serve` starts them, and clients in others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from verifiers.errors import SetupError
from verifiers.sandbox import RemoteBackend

TOKEN = "a-token-for-tests"
SERVE = "from verifiers.cli.main import sandbox_main; sandbox_main()"
# over the scripted backend, with settings that no flag has
SCRIPTED = """
import asyncio
from verifiers.errors import SandboxError
from verifiers.sandbox import SandboxLimits, ScriptedSandboxes
from verifiers.sandbox.gateway import Gateway, serve
from verifiers.sandbox.gateway_sessions import GatewaySettings
from verifiers.sandbox.gateway_tokens import Tokens

async def slow(call):
    seconds = float(call.argv[-1].split()[-1])
    await asyncio.sleep(seconds)
    return "slept"

async def lose(call):
    await slow(call)
    raise SandboxError("the engine is gone")

def count(call):
    call.files["/work/runs"] = call.files.get("/work/runs", b"") + b"x"
    return str(len(call.files["/work/runs"]))

def full(call):
    raise FileNotFoundError("the engine's socket")

def fail(call):
    raise ZeroDivisionError(call.stdin.decode())

async def main():
    backend = ScriptedSandboxes({"echo": lambda call: call.stdin.decode() + call.env.get("A", ""),
                                 "sleep": slow, "lose": lose, "count": count, "full": full,
                                 "break": fail})
    settings = GatewaySettings(%s)
    gateway = Gateway(backend, Tokens(%r), settings)
    await serve(gateway, "127.0.0.1", 0, lambda url: print(f"scripted at {url}", flush=True))

asyncio.run(main())
"""


class GatewayProcess:
    """`with` it; `url` is where it serves. Raises SetupError when it ends instead, with what it said."""

    def __init__(
        self,
        *arguments: str,
        code: str = SERVE,
        token: str | None = TOKEN,
        log: Path | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        env = {name: value for name, value in os.environ.items() if not name.startswith("VF_SANDBOX_")}
        env.update(variables or {})
        if token is not None:
            env["VF_SANDBOX_TOKEN"] = token
        self.log = log
        errors = subprocess.PIPE if log is None else log.open("wb")
        command = [sys.executable, "-W", "error", "-c", code, *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, env=env)
        if log is not None:
            errors.close()
        assert self.process.stdout is not None
        line = self.process.stdout.readline().decode()
        if not line:
            message = self.process.communicate()[1] or b""
            raise SetupError(message.decode().strip() or f"the gateway ended by {self.process.returncode}")
        self.url = line.split()[-1]

    @classmethod
    def scripted(cls, settings: str = "", lines: tuple[str, ...] = (TOKEN,), log: Path | None = None) -> GatewayProcess:
        return cls(code=SCRIPTED % (settings, list(lines)), log=log)

    def end(self, number: int = signal.SIGTERM, timeout_s: float = 120) -> tuple[int, str]:
        """Its exit code, and what it said to stderr unless that went to a file."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            errors = self.process.communicate(timeout=timeout_s)[1]
        finally:
            if self.process.poll() is None:
                self.process.kill()
        return self.process.returncode, (errors or b"").decode()

    def __enter__(self) -> GatewayProcess:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.returncode is None:
            self.end()


class RemoteOverLocal(RemoteBackend):
    """With a gateway of its own, over this machine."""

    arguments = ("serve", "--port", "0", "--min-level", "2", "--warm", "2", "--drain", "0")
    variables: Mapping[str, str] = {}

    def __init__(self) -> None:
        super().__init__(token=TOKEN)
        self._gateway: GatewayProcess | None = None

    async def capabilities(self):
        if self._gateway is None:
            self._gateway = GatewayProcess(*self.arguments, variables=self.variables)
            self._url = self._gateway.url
        return await super().capabilities()

    async def close(self) -> None:
        await super().close()
        if self._gateway is not None:
            assert self._gateway.end() == (0, "")


class RemoteOverPodman(RemoteOverLocal):
    """The same, over containers of the podman of the tests."""

    def __init__(self, image: str) -> None:
        super().__init__()
        options = ("--backend", "podman", "--image", image, "--warm", "2", "--drain", "0")
        self.arguments = ("serve", "--port", "0", *options)

    async def capabilities(self):
        host = os.environ.get("VF_TEST_CONTAINER_HOST")
        if host is None:
            raise SetupError("podman does not answer: VF_TEST_CONTAINER_HOST names none")
        self.variables = {"CONTAINER_HOST": host}
        return await super().capabilities()
