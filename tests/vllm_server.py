"""A real vLLM server on this machine with a tiny model, for the tests marked `vllm`.

`VF_TEST_VLLM_PYTHON` names the Python of the virtual environment that has vLLM; `scripts/setup_vllm.sh` makes one.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PYTHON_VAR = "VF_TEST_VLLM_PYTHON"
MODEL = "tiny"
CONTEXT = 1024
START_LIMIT_S = 300.0  # 20 s on a quiet machine, some minutes on a busy one
STOP_LIMIT_S = 30.0

_RECIPE = Path(__file__).with_name("tiny_model.py")


def vllm_python() -> Path | None:
    """`None`: not set, so tests that need vLLM are skipped."""
    given = os.environ.get(PYTHON_VAR)
    return Path(given).absolute() if given else None


def tiny_model(cache: Path, python: Path) -> Path:
    """The folder of the tiny model, made in `cache` when it is not there yet."""
    folder = cache / f"tiny-qwen3-{hashlib.sha256(_RECIPE.read_bytes()).hexdigest()[:12]}"
    if not folder.exists():
        making = folder.with_suffix(f".{os.getpid()}")
        shutil.rmtree(making, ignore_errors=True)
        subprocess.run([python, _RECIPE, making], check=True, env=_variables(), capture_output=True, text=True)
        making.rename(folder)
    return folder


class VLLMServer:
    """`with VLLMServer(python, model_folder, log) as server:` serves until the block ends.

    `url` ends in /v1. `extra` are more arguments, `variables` more environment variables.
    """

    def __init__(
        self,
        python: Path,
        model: Path,
        log: Path,
        *,
        extra: Sequence[str] = (),
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self.log = log
        self.port = _unused_port()
        self.root = f"http://127.0.0.1:{self.port}"
        self.url = f"{self.root}/v1"
        self._command = [
            *(str(python), "-m", "vllm.entrypoints.openai.api_server"),
            *("--model", str(model), "--served-model-name", MODEL),
            *("--host", "127.0.0.1", "--port", str(self.port)),
            *("--dtype", "float32", "--max-model-len", str(CONTEXT), "--max-num-seqs", "32", "--enforce-eager"),
            *("--enable-scale-out", "--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
            "--return-tokens-as-token-ids",
            *extra,
        ]
        self._variables = _variables() | dict(variables or {})
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> VLLMServer:
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command, env=self._variables, stdout=log, stderr=log, start_new_session=True
            )
        try:
            self._wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """The first process ends the others; whatever is left after a while is killed with its whole session."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            pass
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()

    def _wait(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_LIMIT_S
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise RuntimeError(f"vLLM ended with {self._process.returncode} at start:\n{self.last_words()}")
            try:
                with urllib.request.urlopen(f"{self.root}/health", timeout=5):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.25)
        raise TimeoutError(f"vLLM did not answer within {START_LIMIT_S:.0f} s:\n{self.last_words()}")

    def last_words(self, lines: int = 30) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def post(self, path: str, body: Any) -> Any:
        """Asks the server directly, past any client of ours. `path` starts at the root."""
        request = urllib.request.Request(
            self.root + path, json.dumps(body).encode(), {"content-type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=120) as reply:
            return json.loads(reply.read() or b"null")


def _variables() -> dict[str, str]:
    return os.environ | {
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONWARNINGS": "ignore",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_SERVER_DEV_MODE": "1",  # routes to change the weights' version
    }


def _unused_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]
