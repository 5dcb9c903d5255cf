"""The program of a grading server: loads a grader once, then forks a worker whenever asked. See `grading_process`.

It has one thread and nothing open but its control socket, so forking it is safe; a worker is ready within milliseconds
although what it shares with the server took seconds to import.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import resource
import signal
import socket
import sys
from typing import Any


def main() -> None:
    """Arguments: the control socket, the grader's module, CPU seconds a task, bytes of memory of a worker."""
    if hasattr(os, "SCHED_BATCH"):  # never pushes the event loop's process off its core; its share stays the same
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    control = socket.socket(fileno=int(sys.argv[-4]))
    grader_name, cpu_s, memory_bytes = sys.argv[-3], float(sys.argv[-2]), int(sys.argv[-1])
    try:
        grader = importlib.import_module(grader_name)
        grader.prepare()
    except BaseException as error:
        control.sendall(_line({"error": f"{type(error).__name__}: {error}"}))
        raise
    gc.collect()
    gc.freeze()  # a collection would touch, and so copy, every shared page
    control.sendall(_line({"ready": True}))
    while True:
        request, sockets, _, _ = socket.recv_fds(control, 64, 1)
        if not request:
            return
        if request.startswith(b"reap"):
            _, status = os.waitpid(int(request[4:]), 0)
            control.sendall(_line({"code": os.waitstatus_to_exitcode(status)}))
            continue
        pid = os.fork()
        if pid == 0:
            control.close()
            _work(grader, socket.socket(fileno=sockets[0]), cpu_s, memory_bytes)
        os.close(sockets[0])
        control.sendall(_line({"pid": pid}))


def _work(grader: Any, tasks: socket.socket, cpu_s: float, memory_bytes: int) -> None:
    """A worker's life; it ends when the other end is closed."""
    try:
        _limit(resource.RLIMIT_AS, memory_bytes)
        _limit(resource.RLIMIT_CORE, 0)
        for line in tasks.makefile("rb"):
            # With its default action the signal ends the process from the kernel, whatever C code is running.
            signal.setitimer(signal.ITIMER_PROF, cpu_s)
            reply = _graded(grader, json.loads(line))
            signal.setitimer(signal.ITIMER_PROF, 0)
            tasks.sendall(_line(reply))
    finally:
        os._exit(0)  # never back into the server's loop


def _graded(grader: Any, task: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"value": grader.grade(task)}
    except MemoryError:
        return {"limit": "used up its memory"}
    except RecursionError:
        return {"limit": "nested too deeply"}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


def _limit(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))
