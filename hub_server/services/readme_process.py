"""`render`: a README as HTML within a second, whatever it is.

A regular expression that has met its worst case cannot be stopped from another thread and stops all of them, so
READMEs are rendered by a process of their own, which is killed when it takes too long. It is started with the first
README, costs no import after that, and ends when it has nothing to do, or when the hub ends, however that happens.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import resource
import select
import struct
import subprocess
import sys
import threading
import time

from hub_server.services.readme import MAX_CHARACTERS, is_markdown, plain, rendered

RENDER_S = 1.0
START_S = 30.0  # importing on a busy machine; nothing is being rendered yet
IDLE_S = 120.0
MEMORY_BYTES = 1 << 30
_LENGTH = struct.Struct("!I")


class ReadmeRenderer:
    """`RENDERER` is the one of this process of the hub; threads wait for each other."""

    def __init__(self, render_s: float = RENDER_S) -> None:
        self.render_s = render_s
        self._lock = threading.Lock()  # guards the process: one question, one answer
        self._process: subprocess.Popen[bytes] | None = None
        self._last_used = 0.0

    def render(self, text: str, content_type: str | None) -> str:
        """HTML; the plain text, escaped, when the README cannot be rendered in time or makes the renderer fail."""
        if not text.strip():
            return ""
        if not is_markdown(content_type) or len(text) > MAX_CHARACTERS:
            return plain(text)
        question = json.dumps([text, content_type]).encode()
        with self._lock:
            try:
                process = self._running()
                return self._answer(process, question)
            except (OSError, EOFError, TimeoutError):
                self._stop()
                return plain(text)

    def close(self) -> None:
        atexit.unregister(self.close)
        with self._lock:
            self._stop()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and time.monotonic() - self._last_used > IDLE_S / 2:
            self._stop()  # it may be about to leave
        if self._process is None or self._process.poll() is not None:
            self._stop()
            # -P: no module of the folder that the hub runs in
            command = [sys.executable, "-P", "-m", "hub_server.services.readme_process"]
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C in the hub's terminal is not for it: it ends when its input does
            )
            atexit.register(self.close)
            _receive(self._process, START_S)
        self._last_used = time.monotonic()
        return self._process

    def _answer(self, process: subprocess.Popen[bytes], question: bytes) -> str:
        assert process.stdin is not None
        process.stdin.write(_LENGTH.pack(len(question)) + question)
        process.stdin.flush()
        return _receive(process, self.render_s).decode()

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):  # what was not sent yet cannot be any more
                        pipe.close()
            process.wait()


RENDERER = ReadmeRenderer()


def _receive(process: subprocess.Popen[bytes], within_s: float) -> bytes:
    """Raises TimeoutError, EOFError."""
    assert process.stdout is not None
    descriptor, until = process.stdout.fileno(), time.monotonic() + within_s
    found, wanted = bytearray(), _LENGTH.size
    while len(found) < wanted:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, until - time.monotonic()))
        if not ready:
            raise TimeoutError
        piece = os.read(descriptor, 1 << 20)
        if not piece:
            raise EOFError
        found += piece
        if wanted == _LENGTH.size and len(found) >= wanted:
            wanted += _LENGTH.unpack_from(found)[0]
    return bytes(found[_LENGTH.size :])


def _serve() -> None:
    """The process: a frame in, a frame out, until there is no more."""
    with contextlib.suppress(ValueError, OSError):  # not every system has this limit
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    rendered("# start\n\n```python\nx = 1\n```", "text/markdown")  # lexers load with their first use
    _send(b"")
    while select.select([sys.stdin.buffer], [], [], IDLE_S)[0]:
        head = sys.stdin.buffer.read(_LENGTH.size)
        if len(head) < _LENGTH.size:
            return
        text, content_type = json.loads(sys.stdin.buffer.read(_LENGTH.unpack(head)[0]))
        try:
            answer = rendered(text, content_type)
        except (Exception, RecursionError):  # of a parser that is fed by strangers: the text itself is always right
            answer = plain(text)
        _send(answer.encode("utf-8", "replace"))


def _send(answer: bytes) -> None:
    sys.stdout.buffer.write(_LENGTH.pack(len(answer)) + answer)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    _serve()
