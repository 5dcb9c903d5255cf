"""Runs a text as the script of an interpreter that is already there, and ends the process as a script would."""

from __future__ import annotations

import atexit
import gc
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn


def preload(names: list[str]) -> None:
    """Imports modules, and keeps back what they want to be called at every fork."""
    exec(compile("0", "<warm>", "exec"))  # the first time makes a hundred types: 2 ms
    register = os.register_at_fork
    for name in names:
        os.register_at_fork = lambda *, _name=name, **hooks: _fork_hooks.append((_name, hooks))  # type: ignore[assignment]
        try:
            __import__(name)
        finally:
            os.register_at_fork = register


_OURS = [__name__.rpartition(".")[0]]
while "." in _OURS[-1]:
    _OURS.append(_OURS[-1].rpartition(".")[0])
_fork_hooks: list[tuple[str, dict[str, Any]]] = []


def _run_fork_hooks(source: bytes) -> None:
    """They are slow (half a millisecond), so they are called only for a program that names what they are for."""
    text = source.lower()
    for name, hooks in _fork_hooks:
        os.register_at_fork(**hooks)  # for the program's own forks
        if "after_in_child" in hooks and (name.encode() in text or b"statistics" in text):
            hooks["after_in_child"]()


def run_as_main(source: bytes, path: str, work: str) -> NoReturn:
    """Never returns: the exit status is the script's. `path` is where it is written to, for tracebacks."""
    with open(path, "wb") as file:
        file.write(source)
    code = _execute(source, path, work)
    try:
        if "threading" in sys.modules:
            sys.modules["threading"]._shutdown()
        atexit._run_exitfuncs()
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
    code = _flush(code)
    main = sys.modules.get("__main__")
    if main is not None:
        vars(main).clear()  # files that were never closed are flushed by this
        if b"open" in source or b"__del__" in source:
            gc.collect()
    _flush(0)
    os._exit(code)


def _execute(source: bytes, path: str, work: str) -> int:
    _run_fork_hooks(source)
    for name in _OURS:
        sys.modules.pop(name, None)
    sys.argv[:] = [path]
    sys.path[0:0] = [work]
    main = type(sys)("__main__")
    main.__dict__.update(__file__=path, __builtins__=sys.modules["builtins"], __annotations__={})
    sys.modules["__main__"] = main
    try:
        exec(compile(source, path, "exec", dont_inherit=True), main.__dict__)
    except SystemExit as end:
        return _exit_code(end.code)
    except BaseException as error:
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename != path:
            trace = trace.tb_next
        error.__traceback__ = trace
        sys.last_value = error
        try:
            sys.excepthook(type(error), error, trace)
        except BaseException:
            pass
        return 130 if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _exit_code(value: object) -> int:
    if value is None:
        return 0
    if isinstance(value, int):
        return value & 0xFF
    try:
        print(value, file=sys.stderr)
    except BaseException:
        pass
    return 1


def _flush(code: int) -> int:
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except BaseException:
            code = code or 120  # as the interpreter does
    return code
