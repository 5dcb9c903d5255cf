"""How a program's end is read: pure, from what its cell, its control group and the launcher's own timers say."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from verifiers.sandbox.limits import SandboxLimits
from verifiers.sandbox.sandbox import OUTCOME_OF, ExecResult, Limit


@dataclass(frozen=True, slots=True)
class Ending:
    """What is known. `None`: not known, because the program was killed with everything around it."""

    code: int | None = None  # negative: of a signal
    wall_s: float = 0.0
    cpu_s: float | None = None
    peak_bytes: int | None = None
    fired: Limit | None = None  # the launcher killed it for this
    out_of_memory: bool = False  # the kernel killed a process of its for this
    refused_forks: bool = False
    files_full: bool = False


def read_ending(
    ending: Ending, limits: SandboxLimits, stdout: bytes, stderr: bytes, is_cut: tuple[bool, bool] = (False, False)
) -> ExecResult:
    limit = limit_of(ending, limits, stderr)
    code = ending.code
    return ExecResult(
        outcome=OUTCOME_OF[limit] if limit is not None else "ok" if code == 0 else "nonzero-exit",
        exit_code=code if code is not None and code >= 0 else None,
        signal=signal.SIGKILL if code is None else -code if code < 0 else None,
        stdout=stdout,
        stderr=stderr,
        stdout_truncated=is_cut[0],
        stderr_truncated=is_cut[1],
        limit=limit,
        wall_s=ending.wall_s,
        cpu_s=ending.cpu_s,
        peak_memory_mb=None if ending.peak_bytes is None else ending.peak_bytes / (1 << 20),
    )


def limit_of(ending: Ending, limits: SandboxLimits, stderr: bytes) -> Limit | None:
    """The limit that ended the program, or that it met before it failed; one that it met and survived is none.

    Memory is the exception: when the kernel killed a process, the others no longer do what the program says.
    """
    if ending.fired is not None:
        return ending.fired
    if ending.out_of_memory:
        return "memory"
    code = ending.code
    if code == 0:
        return None
    has_used_up = limits.cpu_s is not None and (ending.cpu_s or 0.0) >= limits.cpu_s - 0.1
    if code == -signal.SIGXCPU or (code == -signal.SIGKILL and has_used_up):
        return "cpu"
    last = stderr.rstrip().rpartition(b"\n")[2]
    if last.startswith(b"MemoryError") or last.endswith(b"Cannot allocate memory"):
        return "memory"
    if code == -signal.SIGXFSZ or last.endswith((b"No space left on device", b"File too large")) or ending.files_full:
        return "files"
    if ending.refused_forks or b"can't start new thread" in last or b"Resource temporarily unavailable" in last:
        return "processes"
    return None
