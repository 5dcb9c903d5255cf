"""`run_uv`: the program that installs and builds, and what of its output is worth repeating."""

from __future__ import annotations

import subprocess

from verifiers.errors import SetupError


def run_uv(arguments: list[str]) -> None:
    """Runs `uv …`. Raises SetupError with the lines of its output that say why it failed."""
    command = [uv_program(), "--color", "never", "--no-progress", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        what = " ".join(arguments[: 2 if arguments[0] == "pip" else 1])
        raise SetupError(f"uv {what} failed: {useful_lines(done.stderr)}")


def uv_program() -> str:
    """The path of uv. Raises SetupError when this installation lacks it."""
    import uv

    try:
        return uv.find_uv_bin()
    except FileNotFoundError as error:
        raise SetupError("the program uv is missing from this installation. Try: python -m pip install uv") from error


_NOISE = (
    "Using Python",
    "Resolved ",
    "Prepared ",
    "Audited ",
    "Building ",
    "Built ",
    "Downloading ",
    "Updating ",
    "warning:",
)


def useful_lines(output: str, limit: int = 12) -> str:
    """uv's complaint without its progress; of a long one the beginning and the end."""
    lines = [line.rstrip() for line in output.splitlines() if line.strip() and not line.strip().startswith(_NOISE)]
    if len(lines) > limit:
        lines = [*lines[: limit // 2], f"… {len(lines) - limit} lines left out …", *lines[-limit // 2 :]]
    return "\n".join(lines).removeprefix("error: ") or "no reason given"
