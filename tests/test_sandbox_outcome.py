"""How a program's end is read, and what is kept of the dead."""

import json
import os
import signal
import subprocess

import pytest

from verifiers.errors import ConfigError
from verifiers.sandbox import SandboxLimits
from verifiers.sandbox.lease import PREFIX, Lease, lease_folder, reap, remove_folder
from verifiers.sandbox.outcome import Ending, read_ending

LIMITS = SandboxLimits(cpu_s=2)


@pytest.mark.parametrize(
    ("ending", "stderr", "outcome", "limit"),
    [
        (Ending(code=0), b"", "ok", None),
        (Ending(code=3), b"", "nonzero-exit", None),
        (Ending(code=-11), b"", "nonzero-exit", None),
        (Ending(fired="wall"), b"", "timeout", "wall"),
        (Ending(code=0, fired="output"), b"", "output-limit", "output"),
        (Ending(code=-9, cpu_s=2.0), b"", "timeout", "cpu"),
        (Ending(code=-9, cpu_s=0.1), b"", "nonzero-exit", None),
        (Ending(code=-24, cpu_s=1.0), b"", "timeout", "cpu"),
        (Ending(code=-9, cpu_s=0.1, out_of_memory=True), b"", "memory-limit", "memory"),
        (Ending(code=0, out_of_memory=True), b"", "memory-limit", "memory"),
        (Ending(code=1), b"Traceback\nMemoryError\n", "memory-limit", "memory"),
        (Ending(code=0), b"MemoryError", "ok", None),
        (Ending(code=1, refused_forks=True), b"", "process-limit", "processes"),
        (Ending(code=0, refused_forks=True), b"", "ok", None),
        (Ending(code=1), b"RuntimeError: can't start new thread", "process-limit", "processes"),
        (Ending(code=1), b"OSError: [Errno 28] No space left on device", "file-limit", "files"),
        (Ending(code=-25), b"", "file-limit", "files"),
        (Ending(code=1, files_full=True), b"", "file-limit", "files"),
    ],
)
def test_an_end_is_read(ending, stderr, outcome, limit):
    result = read_ending(ending, LIMITS, b"", stderr)
    assert (result.outcome, result.limit) == (outcome, limit)
    assert (result.exit_code is None) != (result.signal is None)


def test_a_program_killed_with_everything_around_it_counts_as_killed():
    assert read_ending(Ending(fired="wall"), LIMITS, b"", b"").signal == signal.SIGKILL


def test_a_result_is_json():
    text = json.dumps(read_ending(Ending(code=-11), LIMITS, b"\xff", b"").as_json)
    assert json.loads(text)["signal"] == "SIGSEGV"


@pytest.mark.parametrize("values", [{"wal_s": 1}, {"wall_s": "x"}, {"memory_mb": 0}, {"cpu_s": -1}, [1], "x"])
def test_limits_that_make_no_sense_are_refused(values):
    with pytest.raises(ConfigError):
        SandboxLimits.read(values)


@pytest.fixture
def leases(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path


def test_what_a_dead_process_held_is_removed_by_the_next(leases):
    held = leases / f"{PREFIX}held"
    held.mkdir()
    (held / "file").write_text("x")
    Lease().keep("folder", str(held))
    assert reap({"folder": remove_folder}) == 0, "its owner lives"
    pretend_dead()
    assert reap({"folder": remove_folder}) == 1
    assert not held.exists()
    assert list(lease_folder().iterdir()) == []


def test_what_is_late_is_removed_though_its_owner_lives(leases):
    held = leases / f"{PREFIX}held"
    held.mkdir()
    Lease(lifetime_s=-1).keep("folder", str(held))
    assert reap({"folder": remove_folder}) == 1
    assert not held.exists()


def test_what_cannot_be_removed_stays_written_down(leases):
    Lease().keep("folder", str(leases / f"{PREFIX}gone"))
    pretend_dead()
    assert reap({"folder": lambda name: False}) == 0
    assert reap({}) == 0, "another kind of backend knows how"
    assert reap({"folder": remove_folder}) == 1


def test_only_what_is_named_as_ours_is_removed(leases):
    (leases / "precious").mkdir()
    with pytest.raises(ValueError, match="no folder of ours"):
        remove_folder(str(leases / "precious"))


def test_a_lease_folder_that_others_can_write_to_is_refused(leases):
    lease_folder().chmod(0o777)
    with pytest.raises(PermissionError, match="not this user's alone"):
        lease_folder()


def pretend_dead() -> None:
    """Makes the leases here those of a process that has ended."""
    process = subprocess.Popen(["true"])
    process.wait()
    for path in lease_folder().glob("*.json"):
        content = json.loads(path.read_text())
        assert content["pid"] == os.getpid()
        path.write_text(json.dumps({**content, "pid": process.pid, "started": "1"}))
