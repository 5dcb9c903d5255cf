"""What a run says before its end, each failure when it happens and what a test that hangs waits for; and its clocks.

A run that is cut off shows no summary. A test has the time of `timeout` in pyproject.toml, or of its own mark, and then
fails. When that does not help either, because it or its fixtures do not let themselves be ended, its process ends with
the stacks of all threads; xdist makes another.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# A busy machine is no failure. The examples are the same in each run, so that what fails is the change at hand;
# `--hypothesis-profile=default` looks for others.
settings.register_profile("same", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("same")

LONG_S = 900.0  # for what installs, downloads or starts a model
CLEANING_UP_S = 60.0  # for the fixtures of a test that failed
_ERRORS = pytest.StashKey[int]()  # standard error, also while pytest captures it


class Told:
    """Writes each failure to the terminal at once, also of tests that ran in a worker process."""

    def __init__(self, terminal: Any) -> None:
        self._terminal = terminal

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.failed:
            return
        crash = getattr(report.longrepr, "reprcrash", None)
        text = str(report.longrepr) if crash is None else f"{crash.path}:{crash.lineno}: {crash.message}"
        self._terminal.ensure_newline()
        self._terminal.write_line(f"FAILED {report.nodeid} ({report.when}, {report.duration:.1f} s)", red=True)
        for line in text.splitlines()[:5]:
            self._terminal.write_line(f"    {line[:300]}")


@pytest.hookimpl(trylast=True)  # the terminal is made in this hook
def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a shell's background jobs
        signal.signal(signal.SIGINT, signal.default_int_handler)  # else the programs of the tests ignore it too
    with config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        config.stash[_ERRORS] = os.dup(2)
    terminal = config.pluginmanager.getplugin("terminalreporter")
    if terminal is not None and not hasattr(config, "workerinput"):  # nobody sees a worker's
        config.pluginmanager.register(Told(terminal))


def pytest_unconfigure(config: pytest.Config) -> None:
    if (errors := config.stash.get(_ERRORS, None)) is not None:
        os.close(errors)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        is_long = any(item.get_closest_marker(name) for name in ("slow", "local_model", "vllm"))
        if is_long and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(LONG_S))


def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> None:
    _end_process_after(item, settings.timeout + CLEANING_UP_S)


def pytest_timeout_cancel_timer(item: pytest.Item) -> None:
    faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(trylast=True)
def pytest_exception_interact(node: pytest.Item | pytest.Collector) -> None:
    """Both timers have just been stopped, for a debugger; but what made a test hang makes its fixtures hang as well."""
    if isinstance(node, pytest.Item) and not node.config.getoption("usepdb"):
        _end_process_after(node, CLEANING_UP_S)


def _end_process_after(item: pytest.Item, seconds: float) -> None:
    faulthandler.dump_traceback_later(seconds, exit=True, file=item.config.stash[_ERRORS])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Adds where the tasks wait to what ran into its time limit, whose traceback ends in the event loop."""
    report = yield
    if call.excinfo is not None and isinstance(call.excinfo.value, pytest.fail.Exception):
        stacks = [stack for loop in _loops(call.excinfo.tb) for stack in _stacks(loop)]
        if stacks:
            report.sections.append(("tasks of the event loop", "\n".join(stacks)))
    return report


def _loops(traceback: TracebackType | None) -> set[asyncio.AbstractEventLoop]:
    """Those that the error passed through."""
    found = set()
    while traceback is not None:
        own = traceback.tb_frame.f_locals.get("self")
        if isinstance(own, asyncio.AbstractEventLoop) and not own.is_closed():
            found.add(own)
        traceback = traceback.tb_next
    return found


def _stacks(loop: asyncio.AbstractEventLoop) -> Iterator[str]:
    for task in asyncio.all_tasks(loop):
        lines = [
            f"  {frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_qualname}" for frame in _frames(task)
        ]
        yield "\n".join([task.get_name(), *lines])


def _frames(task: asyncio.Task[Any]) -> Iterator[FrameType]:
    """All of them; `Task.get_stack` has the outermost alone."""
    awaited: Any = task.get_coro()
    while (kind := next((kind for kind in ("cr", "ag", "gi") if hasattr(awaited, f"{kind}_frame")), None)) is not None:
        if (frame := getattr(awaited, f"{kind}_frame")) is not None:
            yield frame
        awaited = getattr(awaited, "gi_yieldfrom" if kind == "gi" else f"{kind}_await")
