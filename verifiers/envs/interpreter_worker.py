"""The program of an interpreter: one session, Python or bash, that runs piece after piece of code. See `interpreter`.

Nothing but the standard library, and nothing of ours: it must run wherever there is a Python.
"""

from __future__ import annotations

import ast
import fcntl
import itertools
import json
import linecache
import os
import queue
import resource
import select
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
import traceback
import types
from typing import Any

MAX_FRAME = 64 << 20  # bytes
_MAX_RESULT, _MAX_ANSWER = 1_000_000, 4_000_000  # characters
_CHILD_WRITES_S = 0.2  # a child that writes without end does not keep a piece of code from ending


def main() -> None:
    """Arguments: the descriptor of the socket to the parent, or `-` for a parent at stdin and stdout.

    Or `call`, a path, and a tool's name and arguments.
    """
    if sys.argv[1] == "call":
        sys.exit(call_from_shell(sys.argv[2], sys.argv[3], sys.argv[4:]))
    channel = Channel(*(_own_streams() if sys.argv[1] == "-" else [int(sys.argv[1])] * 2))
    try:
        session, outputs = _begun(channel, channel.work.get())
    except Exception as error:
        channel.send({"failed": f"{type(error).__name__}: {error}"})
        signal.pause()  # until the parent, which has heard it, ends us
        return
    channel.send({"ready": True})
    while True:
        done = session.run(channel.work.get()["run"])
        done["stdout"], done["stderr"] = (output.take() for output in outputs)
        channel.send({"done": done})


def _own_streams() -> list[int]:
    """stdin and stdout under other descriptors, so that what the code reads and prints does not get between."""
    kept = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3) for descriptor in (0, 1)]
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    os.close(nothing)
    return kept


def _begun(channel: Channel, settings: dict[str, Any]) -> tuple[PythonSession | BashSession, list[Output]]:
    _limit(resource.RLIMIT_AS, settings["memory_bytes"])
    _limit(resource.RLIMIT_FSIZE, settings["file_bytes"])
    _limit(resource.RLIMIT_CORE, 0)
    outputs = [Output(descriptor, settings["kept_bytes"]) for descriptor in (1, 2)]
    session = PythonSession if settings["language"] == "python" else BashSession
    return session(channel, settings), outputs


def _open_streams() -> None:
    """Anew for each piece of code: the last one may have closed them, or put others in their place."""
    sys.stdout, sys.stderr = (
        open(descriptor, "w", 1, "utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
        for descriptor in (1, 2)
    )


class Channel:
    """Frames to and from the parent: four bytes of length, then JSON. Tool calls of any thread wait here for replies.

    When the parent is gone, so is this process with all that it started.
    """

    def __init__(self, source: int, target: int) -> None:
        self._source, self._target = source, target
        self._outbox: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._replies: dict[int, queue.SimpleQueue[dict[str, Any]]] = {}
        self._numbers = itertools.count(1)
        self.work: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        # the sending is a thread's too: an interrupt, which hits the main one, would leave half a frame behind
        for loop in (self._listen, self._deliver):
            threading.Thread(target=loop, daemon=True).start()

    def send(self, frame: dict[str, Any]) -> None:
        data = json.dumps(frame).encode()
        if len(data) > MAX_FRAME:
            raise ValueError(f"{len(data):,} bytes at once are too many; the most is {MAX_FRAME:,}")
        self._outbox.put(struct.pack(">I", len(data)) + data)

    def call(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """What the tool returned. Raises RuntimeError with what it, or the parent, said against it."""
        number, box = next(self._numbers), queue.SimpleQueue()
        self._replies[number] = box
        try:
            self.send({"call": number, "name": name, "args": args, "kwargs": kwargs})
        except (TypeError, ValueError) as error:
            raise TypeError(f"{name}: its arguments must be values such as texts, numbers and lists: {error}") from None
        reply = box.get()
        if "error" in reply:
            raise RuntimeError(reply["error"])
        return reply["value"]

    def _listen(self) -> None:
        stream = open(self._source, "rb", closefd=False)  # noqa: SIM115
        try:
            while head := stream.read(4):
                frame = json.loads(stream.read(struct.unpack(">I", head)[0]))
                if "interrupt" in frame:  # by a parent that cannot send signals
                    _interrupt_all()
                elif "reply" not in frame:
                    self.work.put(frame)
                elif box := self._replies.pop(frame["reply"], None):
                    box.put(frame)
        finally:
            _end_all()

    def _deliver(self) -> None:
        try:
            while True:
                view = memoryview(self._outbox.get())
                while view:
                    view = view[os.write(self._target, view) :]
        except OSError:
            _end_all()


class Output:
    """What is written to a descriptor, by children too: the first `limit` bytes between two `take`s."""

    def __init__(self, descriptor: int, limit: int) -> None:
        self._source, target = os.pipe()
        os.dup2(target, descriptor)
        os.close(target)
        self._limit = limit
        self._kept = bytearray()
        self._dropped = 0
        self._reading = threading.Lock()  # held while bytes are between the pipe and `_kept`
        threading.Thread(target=self._drain, daemon=True).start()

    def take(self) -> str:
        until = time.monotonic() + _CHILD_WRITES_S
        while self._unread() and time.monotonic() < until:
            time.sleep(0.0005)
        with self._reading:
            text = self._kept.decode("utf-8", "replace")
            if self._dropped:
                text += f"\n… ({self._dropped:,} more bytes)"
            self._kept, self._dropped = bytearray(), 0
        return text

    def _unread(self) -> int:
        return struct.unpack("i", fcntl.ioctl(self._source, termios.FIONREAD, b"\0" * 4))[0]

    def _drain(self) -> None:
        while True:
            select.select([self._source], [], [])
            with self._reading:
                data = os.read(self._source, 65536)
                kept = data[: max(0, self._limit - len(self._kept))]
                self._kept += kept
                self._dropped += len(data) - len(kept)


class PythonSession:
    """Variables live on from one piece of code to the next; the value of a last expression is shown."""

    def __init__(self, channel: Channel, settings: dict[str, Any]) -> None:
        module = types.ModuleType("__main__")
        sys.modules["__main__"] = module  # so that classes that the code defines pickle
        sys.path.append("")  # last: a data file called random.py is no module of Python's
        self.names = module.__dict__
        self.names["answer"] = {"content": "", "ready": False}
        if settings["context"]:
            with open(settings["context"], encoding="utf-8", newline="") as file:
                self.names["context"] = json.load(file) if settings["context"].endswith(".json") else file.read()
        for name in settings["tools"]:
            self.names[name] = _tool(channel, name)
        if "llm_batch" in settings["tools"]:
            self.names.setdefault("llm_query", lambda prompt: self.names["llm_batch"]([prompt])[0])
        self.count = 0
        self._is_running = False
        signal.signal(signal.SIGINT, self._interrupt)

    def run(self, code: str) -> dict[str, Any]:
        self.count += 1
        name = f"<cell {self.count}>"
        linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)  # for tracebacks
        _open_streams()
        status, result = "ok", None
        try:
            try:
                result = self._value_of(code, name)
            finally:
                self._is_running = False
        except KeyboardInterrupt:
            status = "interrupted"
        except BaseException as error:
            status, result = "error", _told(error)
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):  # the code closed it
                pass
        if result is not None:
            result = _cut(result, _MAX_RESULT)
        return {"status": status, "result": result, "execution_count": self.count, "answer": self._answer()}

    def _value_of(self, code: str, name: str) -> str | None:
        body = ast.parse(code, name).body
        last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
        self._is_running = True
        exec(compile(ast.Module(body, []), name, "exec"), self.names)
        if last is None:
            return None
        value = eval(compile(ast.Expression(last.value), name, "eval"), self.names)  # type: ignore[attr-defined]
        return None if value is None else repr(value)

    def _answer(self) -> dict[str, Any]:
        """The answer as text. Telling it as ready takes that mark away: whoever goes on must mark the next one."""
        answer = self.names.get("answer")
        if not isinstance(answer, dict):
            return {"content": _as_text(answer), "ready": False}
        told = {"content": _as_text(answer.get("content")), "ready": bool(answer.get("ready"))}
        answer["ready"] = False
        return told

    def _interrupt(self, *_: Any) -> None:
        if self._is_running:
            raise KeyboardInterrupt


class BashSession:
    """One bash that is never restarted while it lives. Tools are functions of it that call back over a local socket."""

    def __init__(self, channel: Channel, settings: dict[str, Any]) -> None:
        self.folder = settings["control_folder"] or os.path.dirname(os.path.abspath(__file__))
        self.count = 0
        self.functions = self._functions(channel, settings["tools"]) if settings["tools"] else ""
        self._start()

    def run(self, code: str) -> dict[str, Any]:
        self.count += 1
        path = os.path.join(self.folder, f"cell_{self.count}.sh")
        with open(path, "w", encoding="utf-8", errors="replace") as file:
            file.write(code)
        # the answer's two names are those of 0.1.12, the others are older; the mark is taken away once told
        answer = '"${ANSWER_READY:-${RLM_READY-}}" "${ANSWER_CONTENT:-${RLM_CONTENT-}}"'
        self._say(
            f". {shlex.quote(path)} </dev/null && __status=0 || __status=$?; "
            f"printf '%s\\0%s\\0%s\\0' \"$__status\" {answer} >&{self._report_to}; unset ANSWER_READY RLM_READY\n"
        )
        report = self._heard()
        if report is None:
            code_ = self.shell.wait()
            self._start()
            text = f"the shell ended with status {code_}; a new one was started, variables are gone, files are not"
            return {"status": "error", "result": text, "execution_count": self.count, "answer": None}
        status, ready, content = report
        return {
            "status": "ok" if status == "0" else "error",
            "result": None if status == "0" else f"exit status {status}",
            "execution_count": self.count,
            "answer": {"content": _cut(content, _MAX_ANSWER), "ready": ready.strip().lower() in ("1", "true", "yes")},
        }

    def _functions(self, channel: Channel, tools: list[str]) -> str:
        address = os.path.join(self.folder, f"tools_{os.getpid()}")
        door = socket.socket(socket.AF_UNIX)
        door.bind(address)
        door.listen(64)
        threading.Thread(target=_serve_shell, args=(door, channel), daemon=True).start()
        program = shlex.join([sys.executable, "-I", __file__, "call", address])
        return "".join(f'{name}() {{ {program} {name} "$@"; }}; export -f {name}\n' for name in tools)

    def _start(self) -> None:
        self._report, self._report_to = os.pipe()
        shell = ["bash", "--noprofile", "--norc"] if shutil.which("bash") else ["sh"]  # small images have no bash
        self.shell = subprocess.Popen(shell, stdin=subprocess.PIPE, pass_fds=[self._report_to])
        self._say(self.functions)

    def _say(self, text: str) -> None:
        stdin: Any = self.shell.stdin
        try:
            stdin.write(text.encode("utf-8", "replace"))
            stdin.flush()
        except BrokenPipeError:  # told by `_heard`
            pass

    def _heard(self) -> list[str] | None:
        """Status, mark and content; `None` when the shell is gone (its children may hold the pipe open still)."""
        data = b""
        while data.count(b"\0") < 3:
            if select.select([self._report], [], [], 0.05)[0]:
                data += os.read(self._report, 65536)
            elif self.shell.poll() is not None:
                os.close(self._report)
                os.close(self._report_to)
                return None
        return [part.decode("utf-8", "replace") for part in data.split(b"\0")[:3]]


def _serve_shell(door: socket.socket, channel: Channel) -> None:
    def answer(caller: socket.socket) -> None:
        with caller, caller.makefile("rb") as said:
            request = json.loads(said.read())
            try:
                reply = {"value": channel.call(request["name"], request["args"], request["kwargs"])}
            except Exception as error:
                reply = {"error": str(error)}
            caller.sendall(json.dumps(reply).encode())

    while True:
        threading.Thread(target=answer, args=(door.accept()[0],), daemon=True).start()


def call_from_shell(address: str, name: str, words: list[str]) -> int:
    """Calls a tool for a shell: `name a b`, `name --json '{"x": 1}'`, or JSON or text on the standard input."""
    try:
        args, kwargs = _arguments(name, words)
    except ValueError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    with socket.socket(socket.AF_UNIX) as parent:
        parent.connect(address)
        parent.sendall(json.dumps({"name": name, "args": args, "kwargs": kwargs}).encode())
        parent.shutdown(socket.SHUT_WR)
        with parent.makefile("rb") as said:
            reply = json.loads(said.read())
    if "error" in reply:
        print(reply["error"], file=sys.stderr)
        return 1
    print(reply["value"] if isinstance(reply["value"], str) else json.dumps(reply["value"]))
    return 0


def _arguments(name: str, words: list[str]) -> tuple[list[Any], dict[str, Any]]:
    if words and words[0] == "--lines":
        given: Any = sys.stdin.read().splitlines()
    elif words and words[0] == "--json":
        given = json.loads(words[1] if len(words) > 1 else sys.stdin.read())
    elif words:
        return ([words], {}) if name == "llm_batch" else ([_decoded(word) for word in words], {})
    else:
        text = sys.stdin.read().strip()
        given = _decoded(text) if text else []
    if isinstance(given, dict) and given.keys() <= {"args", "kwargs"}:
        args, kwargs = given.get("args", []), given.get("kwargs", {})
    elif isinstance(given, dict):
        args, kwargs = [], given
    else:
        args, kwargs = given if isinstance(given, list) else [given], {}
    return ([args], {}) if name == "llm_batch" and not kwargs else (args, kwargs)


def _decoded(word: str) -> Any:
    try:
        return json.loads(word)
    except ValueError:
        return word


def _tool(channel: Channel, name: str) -> Any:
    def tool(*args: Any, **kwargs: Any) -> Any:
        return channel.call(name, list(args), kwargs)

    tool.__name__ = tool.__qualname__ = name
    return tool


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return _cut(value, _MAX_ANSWER)
    try:
        text = json.dumps(value) if isinstance(value, (dict, list, tuple)) else str("" if value is None else value)
    except Exception:
        text = object.__repr__(value)
    return _cut(text, _MAX_ANSWER)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text) - limit:,} more characters)"


def _told(error: BaseException) -> str:
    """The traceback without our own frames."""
    told = traceback.TracebackException.from_exception(error)
    part: Any = told
    while part is not None:
        part.stack = traceback.StackSummary.from_list([f for f in part.stack if f.filename != __file__])
        part = part.__cause__ or part.__context__
    return "".join(told.format()).rstrip()


def _limit(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    try:
        resource.setrlimit(kind, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))
    except (ValueError, OSError):  # systems other than Linux do not have them all
        pass


def _interrupt_all() -> None:
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGINT)
    else:
        os.kill(os.getpid(), signal.SIGINT)


def _end_all() -> None:
    if os.getpgrp() == os.getpid():  # started as the leader of a session: this reaches what the code started
        os.killpg(0, signal.SIGKILL)
    os._exit(0)


if __name__ == "__main__":
    main()
