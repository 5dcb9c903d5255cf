"""The `vf` program: help, errors and exit codes, each in a process of its own."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from verifiers.cli.main import COMMANDS

REPOSITORY = Path(__file__).parents[1]


def vf(
    *arguments: str, program: str = "main", path: Path | None = None, **variables: str
) -> subprocess.CompletedProcess:
    kept = {key: value for key, value in os.environ.items() if key != "VF_LOG_LEVEL"}
    search = os.pathsep.join(str(folder) for folder in (REPOSITORY, path) if folder)
    code = f"from verifiers.cli.main import {program}; {program}()"
    command = [sys.executable, "-P", "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env={**kept, "PYTHONPATH": search, **variables})


def test_help_names_every_command():
    done = vf("--help")
    assert done.returncode == 0
    for name, summary in COMMANDS.items():
        assert f"{name} " in done.stdout
        assert summary.split()[0] in done.stdout
    assert vf().stdout == done.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name):
    done = vf(name, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"vf {name}" in done.stdout


def test_programs_are_the_commands():
    for name in ("eval", "init", "install", "validate", "build", "setup", "sandbox"):
        assert vf("--help", program=f"{name}_main").stdout.startswith(f"Usage: vf-{name} ")


def test_version_is_printed():
    assert vf("--version").stdout.startswith("verifiers ")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["install", "--pth", "x"], "no option --pth; did you mean --path?"),
        (["install", "--zzz", "x"], "no option --zzz. See vf install --help"),
        (["instal", "x"], "no command 'instal'; did you mean install?"),
        (["zzz"], "no command 'zzz'. There are: eval, "),
        (["install"], "See vf install --help"),
        (["init", "x", "-t", "tool"], "tools"),
    ],
)
def test_usage_errors_take_one_line_name_the_nearest_and_exit_2(arguments, told):
    done = vf(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert told in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


def test_setup_errors_take_one_line_and_exit_3():
    done = vf("uninstall", "zz-nothing")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("error: no environment 'zz-nothing' to remove")
    assert len(done.stderr.splitlines()) == 1


def test_traceback_comes_only_when_asked_for():
    assert "Traceback" not in vf("uninstall", "zz-nothing").stderr
    assert "Traceback" in vf("uninstall", "zz-nothing", "--debug").stderr
    assert "Traceback" in vf("--debug", "uninstall", "zz-nothing").stderr
    assert "Traceback" in vf("uninstall", "zz-nothing", VF_LOG_LEVEL="DEBUG").stderr


def test_other_packages_add_commands_and_their_surprises_exit_1(tmp_path):
    info = tmp_path / "zz_hub-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: zz-hub\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[verifiers.commands]\nlisten = zz_hub:serve\neval = zz_hub:serve\n")
    (tmp_path / "zz_hub.py").write_text("def serve(port: int = 80):\n    print('port', port, 1 // (port - 1))\n")
    assert "(from the package zz-hub)" in vf("--help", path=tmp_path).stdout
    assert vf("listen", "--port", "2", path=tmp_path).stdout == "port 2 1\n"
    broken = vf("listen", "--port", "1", path=tmp_path)
    assert broken.returncode == 1
    assert broken.stderr.startswith("error: ZeroDivisionError")
    assert len(broken.stderr.splitlines()) == 1
    assert "Evaluate" in vf("eval", "--help", path=tmp_path).stdout  # our own commands cannot be replaced


@pytest.mark.parametrize(("program", "argument"), [("main", "--help"), ("eval_main", "--help"), ("main", "--version")])
def test_help_costs_less_than_a_quarter_second_and_imports_nothing_heavy(program, argument):
    heavy = ("rich", "datasets", "openai", "pydantic", "aiohttp", "msgspec", "math_verify", "asyncio")
    code = (
        f"import sys; from verifiers.cli.main import {program}\ntry:\n    {program}()\nfinally:\n"
        f"    print([m for m in {heavy} if m in sys.modules], file=sys.stderr)"
    )
    costs, bare = [], []
    for _ in range(3):
        done, cost = cpu_seconds(code, argument)
        assert done.stderr.strip() == "[]"
        costs.append(cost)
        bare.append(cpu_seconds("import typer")[1])
    # CPU time grows on a busy machine, so there the bound is what Typer itself costs at that moment
    assert min(costs) < max(0.25, 1.6 * min(bare))


def cpu_seconds(code: str, *arguments: str) -> tuple[subprocess.CompletedProcess, float]:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-P", "-c", code, *arguments]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
