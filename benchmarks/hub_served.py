"""`Served`: the real `vf-hub serve` on a made-up hub in a temporary folder, and what its process costs. Linux only."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hub_filled import fill

from hub_server.settings import Settings

TICK_NS = 10**9 // os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Server:
    process: subprocess.Popen
    base: str  # of its addresses, without a slash at the end

    def cpu_ns(self) -> int:
        """CPU time of the server and of the processes it started, to the nanosecond while they live."""
        pid = self.process.pid
        ended = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[13:15]
        return sum(_clock_ns(one) for one in (pid, *_children(pid))) + sum(map(int, ended)) * TICK_NS

    def memory_mib(self, name: str = "VmRSS") -> float:
        """Of the server's process alone; `VmHWM` is the most since the start or `forget_peak`."""
        status = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return round(int(next(line for line in status if line.startswith(f"{name}:")).split()[1]) / 1024, 1)

    def forget_peak(self) -> None:
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")


@dataclass(frozen=True)
class Served(Server):
    data: Path
    token: str  # of the user `bench`, scope `publish`


@contextlib.contextmanager
def served(n_others: int = 0, **settings: str) -> Iterator[Served]:
    """A hub with `n_others` environments besides those of known sizes. Limits of rates are out of the way; the log is
    written as by default, to a file."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "hub"
        token = fill(Settings(data=data), n_others)
        free = {"VF_HUB_SEARCHES_PER_MINUTE": "100000000", "VF_HUB_UPLOADS_PER_HOUR": "100000000"}
        environment = {**os.environ, **free, **{f"VF_HUB_{name.upper()}": value for name, value in settings.items()}}
        command = [sys.executable, "-m", "hub_server.cli", "serve", "--data", str(data), "--port", "0"]
        with open(Path(folder) / "log", "wb") as log:
            process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            yield Served(process, _address(process), data, token)
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=30)


@contextlib.contextmanager
def floor() -> Iterator[Server]:
    """uvicorn with next to nothing in it (`hub_floor.py`)."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(128)
        listener.set_inheritable(True)
        command = [
            sys.executable,
            "-m",
            "uvicorn",
            "hub_floor:app",
            "--fd",
            str(listener.fileno()),
            "--lifespan",
            "off",
        ]
        process = subprocess.Popen(
            [*command, "--no-access-log", "--log-level", "warning", "--app-dir", str(Path(__file__).parent)],
            pass_fds=[listener.fileno()],
        )
        try:
            yield Server(process, f"http://127.0.0.1:{listener.getsockname()[1]}")
        finally:
            process.terminate()
            process.wait(30)


def _address(process: subprocess.Popen) -> str:
    """From the first line that the server prints. Its socket listens by then; who connects waits for the rest."""
    line = process.stdout.readline()
    if "http://" not in line:
        raise SystemExit(f"the hub did not start: {line!r}")
    return "http://" + line.partition("http://")[2].split()[0]


def _clock_ns(pid: int) -> int:
    with contextlib.suppress(OSError):  # it ended just now
        return time.clock_gettime_ns(~pid << 3 | 2)  # what clock_getcpuclockid(3) makes of a process's number
    return 0


def _children(pid: int) -> list[int]:
    found = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            found += map(int, (thread / "children").read_text().split())
    return found
