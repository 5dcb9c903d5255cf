"""The model on this machine: its weights arrive whole and once, its server starts, answers and ends with us."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from io import StringIO
from pathlib import Path

import pytest

from verifiers.clients import local_weights
from verifiers.clients.local import LocalModel
from verifiers.clients.local_weights import SMOLLM2, find_weights
from verifiers.errors import SetupError

FETCH = "from verifiers.clients.local_weights import find_weights; print(find_weights())"


@pytest.fixture
def empty_cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("VF_LOCAL_MODEL", raising=False)
    return tmp_path / "verifiers" / "models"


def post(base_url: str, body: dict) -> dict:
    request = urllib.request.Request(
        f"{base_url}/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=120) as reply:
        return json.load(reply)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_named_file_that_is_not_there_or_no_gguf_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("VF_LOCAL_MODEL", str(tmp_path / "none.gguf"))
    with pytest.raises(SetupError, match=r"none\.gguf cannot be read: No such file"):
        find_weights()
    text = tmp_path / "text.gguf"
    text.write_text("hello")
    monkeypatch.setenv("VF_LOCAL_MODEL", str(text))
    with pytest.raises(SetupError, match="is no GGUF file"):
        find_weights()


def test_without_a_network_one_line_says_what_to_do(empty_cache, monkeypatch):
    monkeypatch.setenv("UV_OFFLINE", "1")
    with pytest.raises(SetupError) as raised:
        find_weights(stream=StringIO())
    message = str(raised.value)
    assert "SmolLM2-135M-Instruct" in message and "VF_LOCAL_MODEL=/path/to.gguf" in message
    assert "\n" not in message
    assert [path.name for path in empty_cache.iterdir()] == [".lock"], "a failed fetch leaves something behind"


def test_a_folder_that_cannot_be_made_is_named(tmp_path, monkeypatch):
    monkeypatch.delenv("VF_LOCAL_MODEL", raising=False)
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(SetupError, match=r"file/verifiers/models cannot be written.*XDG_CACHE_HOME"):
        find_weights()


def test_a_relative_cache_folder_is_ignored(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert local_weights.cache_folder() == tmp_path / ".cache" / "verifiers" / "models"


def test_a_model_that_is_not_running_has_no_address():
    with pytest.raises(RuntimeError, match="call start"):
        _ = LocalModel().base_url


def test_a_torn_model_file_ends_with_the_engine_s_reason(tmp_path, monkeypatch):
    pytest.importorskip("xllamacpp")
    torn = tmp_path / "torn.gguf"
    torn.write_bytes(b"GGUF" + bytes(100))
    monkeypatch.setenv("VF_LOCAL_MODEL", str(torn))
    model = LocalModel()
    with pytest.raises(SetupError, match=r"ended with 1 at start: .*torn\.gguf"):
        model.start()
    model.close()


@pytest.mark.local_model
def test_two_processes_fetch_the_weights_once_and_a_torn_file_again(empty_cache):
    empty_cache.mkdir(parents=True)
    path = empty_cache / SMOLLM2.file
    path.write_bytes(b"GGUF, torn")
    (empty_cache / ".fetch-killed").mkdir()  # what a killed fetch leaves
    both = [
        subprocess.Popen([sys.executable, "-c", FETCH], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    outputs = [process.communicate(timeout=300) for process in both]
    assert [out.strip() for out, _ in outputs] == [str(path)] * 2
    assert sum("fetching the local model" in err for _, err in outputs) == 1
    assert path.stat().st_size == SMOLLM2.size_bytes
    assert {entry.name for entry in empty_cache.iterdir()} == {".lock", SMOLLM2.file}


@pytest.mark.local_model
async def test_the_server_answers_and_ends_with_close():
    pytest.importorskip("xllamacpp")
    async with LocalModel(slots=2) as model:
        process = model._process
        assert process is not None
        assert model.base_url.startswith("http://127.0.0.1:")
        body = {"model": model.model, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}
        reply = post(model.base_url, body)
        assert reply["model"] == "SmolLM2-135M-Instruct"
        assert 1 <= reply["usage"]["completion_tokens"] <= 4
    assert process.returncode == 0
    model.close()  # a second time does nothing


@pytest.mark.local_model
def test_the_server_ends_when_its_parent_is_killed():
    pytest.importorskip("xllamacpp")
    script = (
        "import time\nfrom verifiers.clients.local import LocalModel\n"
        "model = LocalModel(slots=1)\nmodel.start()\nprint(model._process.pid, flush=True)\ntime.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        server = int(parent.stdout.readline())
        assert is_running(server)
        os.kill(parent.pid, signal.SIGKILL)
    deadline = time.monotonic() + 60
    while is_running(server) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_running(server)
