"""`vf-eval` as a program, against a small OpenAI-like server on this machine."""

import asyncio
import contextlib
import fcntl
import json
import os
import pty
import re
import shlex
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path

import pytest
from aiohttp import web
from loopback import end
from waiting import steady

from verifiers.records import read_records

ROOT = Path(__file__).parents[1]
KEY = "sk-secret-0123456789abcdef"

ENVIRONMENT = """
import os
import verifiers as vf


def right(completion, answer):
    print("scoring")  # must not reach standard output
    return float(completion[-1]["content"].split(":")[-1].strip() == answer)


def short(completion):
    return 1.0 if len(completion[-1]["content"]) < 40 else 0.0


def broken(completion):
    raise ZeroDivisionError("grader fell over")


def load_environment(n=6, reward="right"):
    rows = [{"question": f"{i} + {i}", "answer": str(2 * i)} for i in range(n)]
    funcs = [broken if reward == "broken" else right, short]
    return vf.SingleTurnEnv(dataset=rows, rubric=vf.Rubric(funcs=funcs, weights=[1.0, 0.5]))
"""


class Server:
    """Adds two numbers. Model "stubborn" refuses sums above 5; replies take `delay_s`."""

    models = ("adder", "adder-large", "stubborn")

    def __init__(self) -> None:
        self.key: str | None = None
        self.delay_s = 0.0
        self.lists_models = True
        self.n_requests = 0
        self.keys_seen: set[str | None] = set()
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        assert self._ready.wait(100)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        app = web.Application()
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/chat/completions", self._chat)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        self._loop.run_until_complete(runner.setup())
        site = web.TCPSite(runner, "127.0.0.1", 0)
        self._loop.run_until_complete(site.start())
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        self._ready.set()
        self._loop.run_forever()
        end(self._loop, runner)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(100)

    def _refuse(self, request: web.Request) -> web.Response | None:
        sent = request.headers.get("Authorization")
        self.keys_seen.add(sent)
        if self.key is None or sent == f"Bearer {self.key}":
            return None
        error = {"message": f"Incorrect API key provided: {sent}", "type": "invalid_request_error"}
        return web.json_response({"error": error}, status=401)

    async def _models(self, request: web.Request) -> web.Response:
        if not self.lists_models:
            return web.Response(status=404, text="<html>not here</html>")
        return self._refuse(request) or web.json_response({"data": [{"id": name} for name in self.models]})

    async def _chat(self, request: web.Request) -> web.Response:
        if refusal := self._refuse(request):
            return refusal
        self.n_requests += 1
        body = await request.json()
        await asyncio.sleep(self.delay_s)
        a, b = (int(number) for number in re.findall(r"\d+", body["messages"][-1]["content"]))
        if body["model"] not in self.models:
            return web.json_response({"error": {"message": "no such model", "code": "model_not_found"}}, status=404)
        if body["model"] == "stubborn" and a + b > 5:
            return web.json_response({"error": {"message": "sums above 5 are beneath me"}}, status=400)
        message = {"role": "assistant", "content": f"the sum: {a + b if a else 7}"}  # 0 + 0 it gets wrong
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14}
        return web.json_response({"id": "x", "model": body["model"], "choices": [choice], "usage": usage})


@pytest.fixture
def server():
    running = Server()
    yield running
    running.close()


class Shell:
    """A folder to work in, with `vf-eval` on the path and an environment `tiny-env` that can be imported."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        modules, programs = folder / "modules", folder / "bin"
        modules.mkdir()
        programs.mkdir()
        (modules / "tiny_env.py").write_text(ENVIRONMENT)
        program = programs / "vf-eval"
        program.write_text(f"#!{sys.executable}\nfrom verifiers.cli.main import eval_main\neval_main()\n")
        program.chmod(0o755)
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("OPENAI", "VF_", "COV"))}
        self.env = kept | {
            "PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', '')}",
            "PYTHONPATH": f"{ROOT}{os.pathsep}{modules}",
            "OMP_NUM_THREADS": "1",
        }

    def start(self, command: str, **variables: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            shlex.split(command),
            cwd=self.folder,
            env=self.env | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
        )

    def run(self, command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        process = self.start(command, **variables)
        out, err = process.communicate(timeout=120)
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    def run_on_terminal(self, command: str, **variables: str) -> tuple[str, str]:
        """Standard output, and what was written to a terminal of 80 × 24 characters that is its standard error."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        variables = {"TERM": "xterm-256color", **variables}
        process = subprocess.Popen(
            shlex.split(command),
            cwd=self.folder,
            env=self.env | variables,
            stdout=subprocess.PIPE,
            stderr=theirs,
            text=True,
        )
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # the end of a terminal
            while chunk := os.read(ours, 65536):
                shown += chunk
        os.close(ours)
        out, _ = process.communicate(timeout=120)
        return out, shown.decode()

    def saved_runs(self) -> list[Path]:
        return sorted(self.folder.glob("outputs/evals/*/*"))

    def saved_run(self) -> Path:
        (folder,) = self.saved_runs()
        return folder

    def saved_text(self) -> str:
        return "".join(file.read_text() for folder in self.saved_runs() for file in folder.iterdir())


@pytest.fixture
def shell(tmp_path):
    return Shell(tmp_path)


def lines_of(file: Path) -> int:
    return file.read_bytes().count(b"\n") if file.exists() else 0


def wait_for_results(shell: Shell, n: int) -> Path:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        for folder in shell.saved_runs():
            if lines_of(folder / "results.jsonl") >= n:
                return folder
        time.sleep(0.02)
    raise AssertionError(f"{n} results did not come")


def test_a_run_ends_in_a_table_and_a_saved_folder(server, shell):
    done = shell.run(f"vf-eval tiny-env -m adder -b {server.url} -n 4 -r 2")
    assert done.returncode == 0, done.stderr
    assert "adder @ 127.0.0.1" in done.stdout
    assert re.search(r"reward +1\.250 ± \S+ +\[\S+, \S+\] +8 of 8 scored", done.stdout)
    assert re.search(r"right +0\.750 +×1 +0\.750", done.stdout)
    assert re.search(r"short +1\.000 +×0\.5 +0\.500", done.stdout)
    assert "tokens 80 in 32 out" in done.stdout
    assert "scoring" not in done.stdout  # what the environment prints
    assert "0/8 done" in done.stderr  # without a terminal: plain lines
    assert "\x1b" not in done.stdout + done.stderr
    folder = shell.saved_run()
    assert f"saved          {folder.relative_to(shell.folder)}" in done.stdout
    assert folder.parent.name == "tiny-env--adder"
    records = list(read_records(folder / "results.jsonl"))
    assert {record.key for record in records} == {(i, j) for i in range(4) for j in range(2)}
    assert json.loads((folder / "metadata.json").read_text())["avg_reward"] == 1.25


def test_json_is_the_saved_metadata_and_alone_on_standard_output(server, shell):
    done = shell.run(f"vf-eval tiny-env -m adder -b {server.url} -n 2 -r 2 --json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told == json.loads((shell.saved_run() / "metadata.json").read_text())
    assert (told["status"], told["n_scored"]) == ("done", 4)
    assert told["usage"] == {"input_tokens": 40, "output_tokens": 16, "reasoning_tokens": None, "cost": None}


def test_failures_beyond_the_allowed_share_exit_with_1(server, shell):
    command = f"vf-eval tiny-env -m stubborn -b {server.url} -n 4 -r 1"
    done = shell.run(command)
    assert done.returncode == 1
    assert "3 of 4 scored" in done.stdout
    assert "1 × model · ModelRequestError" in done.stdout and "beneath me" in done.stdout
    assert "1 of 4 rollouts have no score" in done.stderr
    assert "--resume-path" in done.stderr
    assert shell.run(f"{command} --max-failed 0.25").returncode == 0


def test_rollouts_that_cannot_be_graded_raise_an_alarm_above_the_share_asked_for(server, shell):
    command = f"vf-eval tiny-env -m adder -b {server.url} -n 6 -r 1 -a reward=broken"
    done = shell.run(command)
    assert "ALARM: ungraded 100% of the last 6: 6 fault" in done.stdout
    done = shell.run(f"{command} --ungraded-alarm 1 --json")
    found = json.loads(done.stdout)["ungraded"]
    assert (found["n"], found["n_ungraded"], found["is_alarming"], found["alarm_above"]) == (6, 6, False, 1.0)


def test_when_all_fail_for_one_reason_it_is_one_line(server, shell):
    done = shell.run(f"vf-eval tiny-env -m adder -b {server.url} -n 3 -r 1 -a reward=broken")
    assert done.returncode == 1
    assert "reward         –" in done.stdout
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert "every rollout failed (reward)" in line and "grader fell over" in line


def test_a_wrong_key_takes_few_lines_and_is_never_printed(server, shell):
    server.key = "sk-another-0123456789"
    started = time.monotonic()
    done = shell.run(f"vf-eval tiny-env -m adder -b {server.url} -k MY_KEY", MY_KEY=KEY)
    assert done.returncode == 3
    assert len(done.stderr.splitlines()) <= 3
    assert server.url in done.stderr and "MY_KEY" in done.stderr and "401" in done.stderr
    assert KEY not in done.stdout + done.stderr
    assert server.n_requests == 0
    assert time.monotonic() - started < 30


def test_a_key_refused_only_by_the_model_call_ends_the_run_at_once(server, shell):
    server.key, server.lists_models = "sk-another-0123456789", False
    done = shell.run(f"vf-eval tiny-env -m adder -b {server.url} -k MY_KEY -n 6 -r 3", MY_KEY=KEY)
    assert done.returncode == 3
    errors = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert len(errors) == 1 and "MY_KEY" in errors[0]
    assert len(done.stderr.splitlines()) <= 3
    assert KEY not in done.stdout + done.stderr + shell.saved_text()
    assert "Traceback" not in done.stderr


def test_the_key_is_sent_and_written_nowhere(server, shell):
    server.key = KEY
    done = shell.run(f"vf-eval tiny-env -m adder -b {server.url} -k MY_KEY -n 2 -r 1 -v", MY_KEY=KEY)
    assert done.returncode == 0, done.stderr
    assert f"Bearer {KEY}" in server.keys_seen
    assert KEY not in done.stdout + done.stderr + shell.saved_text()


def test_a_secret_header_is_sent_and_written_nowhere(server, shell):
    server.key = KEY
    server.delay_s = 0.3
    process = shell.start(f"vf-eval tiny-env -m adder -b {server.url} --header 'Authorization: Bearer {KEY}' -n 6 -c 1")
    wait_for_results(shell, 1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert KEY not in out + err + shell.saved_text()


@steady(0.5)
def test_an_unknown_model_names_those_near_it(server, shell):
    done = shell.run(f"vf-eval tiny-env -m addr -b {server.url}")
    assert done.returncode == 3
    assert "no model 'addr'" in done.stderr and "adder" in done.stderr
    assert shell.saved_runs() == []


def test_a_server_without_a_model_list_is_only_warned_about(server, shell):
    server.lists_models = False
    done = shell.run(f"vf-eval tiny-env -m adder -b {server.url} -n 1 -r 1")
    assert done.returncode == 0
    assert "no model list (HTTP 404)" in done.stderr


@steady(0.5)
def test_a_server_that_is_down_is_said_within_seconds(shell):
    started = time.monotonic()
    shell.run("vf-eval tiny-env -m gpt-x")  # asks none
    start_s = time.monotonic() - started
    done = shell.run("vf-eval tiny-env -m adder -b http://127.0.0.1:9/v1")
    assert time.monotonic() - started < 3 * start_s + 3
    assert done.returncode == 3
    assert "http://127.0.0.1:9/v1 cannot be reached" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_far_model_without_a_key_is_one_line(shell):
    done = shell.run("vf-eval tiny-env -m gpt-x")
    assert done.returncode == 3
    assert "OPENAI_API_KEY is not set" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_an_unknown_environment_names_one_near_it(server, shell):
    package = shell.folder / "environments" / "tiny_sums"
    package.mkdir(parents=True)
    (package / "pyproject.toml").write_text('[project]\nname = "tiny-sums"\nversion = "0.1.0"\n')
    done = shell.run(f"vf-eval tiny-sum -m adder -b {server.url}")
    assert done.returncode == 3
    assert "no environment 'tiny-sum'" in done.stderr and "tiny-sums" in done.stderr


def test_a_wrong_argument_of_the_environment_names_the_right_one(server, shell):
    done = shell.run(f"vf-eval tiny-env -m adder -b {server.url} -a rewards=x")
    assert done.returncode == 3
    assert "'reward'" in done.stderr


@pytest.mark.parametrize(
    "flags, words",
    [("-a '{\"n\": 3,}'", "not JSON"), ("--num-exampels 3", "--num-examples"), ("-n 0", "num_examples")],
)
def test_usage_errors_exit_with_2_before_anything_is_asked(server, shell, flags, words):
    done = shell.run(f"vf-eval tiny-env -m adder -b {server.url} {flags}")
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert server.keys_seen == set()


def test_no_environment_shows_an_example(shell):
    done = shell.run("vf-eval")
    assert done.returncode == 2
    assert "vf-eval math-env" in done.stderr


def test_flags_without_effect_say_so(server, shell):
    done = shell.run(f"vf-eval tiny-env -m adder -b {server.url} -n 1 -r 1 -s -w 4 --disable-env-server -u -N")
    assert done.returncode == 0
    for flag in ("--num-workers", "--disable-env-server", "--no-interleave-scoring"):
        assert f"{flag} has no effect" in done.stderr


def test_an_interrupted_run_goes_on_with_exactly_what_is_missing(server, shell):
    server.delay_s = 0.15
    process = shell.start(f"vf-eval tiny-env -m adder -b {server.url} -n 6 -r 4 -c 2 -a '{{\"n\": 6}}'")
    folder = wait_for_results(shell, 5)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    n_first = lines_of(folder / "results.jsonl")
    assert 5 <= n_first < 24
    assert f"interrupted: {n_first} of 24 rollouts are saved" in err
    assert "Traceback" not in err
    assert json.loads((folder / "metadata.json").read_text())["status"] == "interrupted"
    command = err[err.index("Go on with:") :].splitlines()[1].strip()
    assert command.startswith("vf-eval tiny-env")

    server.n_requests, server.delay_s = 0, 0.0
    done = shell.run(command)
    assert done.returncode == 0, done.stderr
    assert server.n_requests == 24 - n_first
    assert "24 of 24 scored" in done.stdout
    keys = [record.key for record in read_records(folder / "results.jsonl")]
    assert sorted(keys) == [(i, j) for i in range(6) for j in range(4)]
    metadata = json.loads((folder / "metadata.json").read_text())
    assert metadata["status"] == "done"
    assert metadata["usage"]["input_tokens"] == 240  # both parts

    server.n_requests = 0
    again = shell.run(command)  # nothing is missing: nothing is asked
    assert again.returncode == 0 and server.n_requests == 0


def is_pending(pid: int, number: int) -> bool:
    """Whether the process has been sent it and has not been let run since."""
    status = Path(f"/proc/{pid}/status")
    lines = status.read_text().splitlines() if status.exists() else ()
    masks = [int(line.split()[1], 16) for line in lines if line.startswith(("SigPnd:", "ShdPnd:"))]
    return any(mask >> (number - 1) & 1 for mask in masks)


def test_a_second_interrupt_leaves_at_once(server, shell):
    server.delay_s = 0.2
    (shell.folder / "modules" / "slow_env.py").write_text(
        ENVIRONMENT.replace("import os", "import os, time").replace(
            'print("scoring")', "if answer != '0': open('asleep', 'w').close(); time.sleep(250)"
        )
    )
    process = shell.start(f"vf-eval slow-env -m adder -b {server.url} -n 4 -r 1 -c 1")
    folder = wait_for_results(shell, 1)
    deadline = time.monotonic() + 120
    while not (shell.folder / "asleep").exists():  # in author code, which blocks everything
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    while is_pending(process.pid, signal.SIGINT):  # two of them at once would be one
        time.sleep(0.02)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    started = time.monotonic()
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert time.monotonic() - started < 100
    assert f"--resume-path {folder.relative_to(shell.folder)}" in err
    assert lines_of(folder / "results.jsonl") == 1


def test_resume_finds_the_unfinished_run_and_refuses_another_configuration(server, shell):
    command = f"vf-eval tiny-env -m adder -b {server.url} -n 3 -r 1 -T 0"
    fresh = shell.run(f"{command} -R")
    assert fresh.returncode == 0 and "starting a new one" in fresh.stderr
    folder = shell.saved_run()
    other = shell.run(f"{command} -T 1 --resume-path {folder}")
    assert other.returncode == 3
    assert "temperature" in other.stderr

    results, metadata = folder / "results.jsonl", folder / "metadata.json"
    results.write_bytes(b"".join(results.read_bytes().splitlines(keepends=True)[:2]))
    metadata.write_text(metadata.read_text().replace('"finished": 3', '"finished": 2'))
    server.n_requests = 0
    done = shell.run(f"{command} -R")
    assert done.returncode == 0, done.stderr
    assert "2 of 3 rollouts are there" in done.stderr
    assert server.n_requests == 1
    assert shell.saved_runs() == [folder]


def test_the_environments_own_counts_hold_unless_flags_are_given(server, shell):
    package = shell.folder / "modules" / "tiny_env-0.3.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: tiny-env\nVersion: 0.3.0\nRequires-Dist: verifiers\n"
    )
    (package / "RECORD").write_text("tiny_env.py,,\npyproject.toml,,\n")
    (shell.folder / "modules" / "pyproject.toml").write_text(
        '[project]\nname = "tiny-env"\nversion = "0.3.0"\n'
        "[tool.verifiers.eval]\nnum_examples = 2\nrollouts_per_example = 5\n"
    )
    done = shell.run(f"vf-eval tiny-env -m adder -b {server.url} -n 1 --json")
    told = json.loads(done.stdout)
    assert (told["num_examples"], told["rollouts_per_example"]) == (1, 5)
    assert told["env"]["version"] == "0.3.0"


def test_prices_of_the_endpoints_file_give_the_cost(server, shell):
    (shell.folder / "configs").mkdir()
    (shell.folder / "configs" / "endpoints.toml").write_text(
        f'[[endpoint]]\nendpoint_id = "mine"\nmodel = "adder"\nurl = "{server.url}"\n'
        "input_price = 1.0\noutput_price = 10.0\n"
    )
    done = shell.run("vf-eval tiny-env -m mine -n 2 -r 1 --json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["usage"]["cost"] == pytest.approx(2 * (10 * 1.0 + 4 * 10.0) / 1e6)


def test_a_file_runs_its_evaluations_one_after_the_other(server, shell):
    (shell.folder / "suite.toml").write_text(
        f'api_base_url = "{server.url}"\nnum_examples = 2\nrollouts_per_example = 1\n'
        '[[eval]]\nenv_id = "tiny-env"\nmodel = "adder"\n'
        '[[eval]]\nenv_id = "no-such-env"\nmodel = "adder"\n'
        '[[eval]]\nenv_id = "tiny-env"\nmodel = "adder-large"\n'
    )
    done = shell.run("vf-eval suite.toml")
    assert done.returncode == 3  # one could not be set up; the others ran
    assert len(shell.saved_runs()) == 2
    head, *rows = done.stdout.splitlines()[1:6]
    assert head.split()[:3] == ["environment", "model", "reward"]
    assert [row.split()[1] for row in rows[:3]] == ["tiny-env", "no-such-env", "tiny-env"]
    assert "not run" in rows[1] and "2/2" in rows[2]


def test_an_unknown_key_of_the_file_exits_with_2(shell):
    (shell.folder / "suite.toml").write_text('[[eval]]\nenv_id = "tiny-env"\nrollouts_per_exampel = 1\n')
    done = shell.run("vf-eval suite.toml")
    assert done.returncode == 2
    assert "'rollouts_per_example'" in done.stderr


def test_a_full_disk_ends_the_run_in_one_line_and_keeps_what_was_written(server, shell):
    command = f"vf-eval tiny-env -m adder -b {server.url} -n 6 -r 10 -c 2"
    done = shell.run(f"bash -c 'ulimit -f 16; exec {command}'")  # no file above 16 kB
    assert done.returncode == 3, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert "cannot write to" in line and "Traceback" not in done.stderr
    folder = shell.saved_run()
    n_first = len(list(read_records(folder / "results.jsonl")))
    assert 0 < n_first < 60
    assert f"{n_first} of 60 rollouts are saved" in done.stderr
    server.n_requests = 0
    assert shell.run(f"{command} --resume-path {folder}").returncode == 0
    assert server.n_requests == 60 - n_first


@steady(0.2)
def test_on_a_terminal_there_is_a_live_display_of_at_most_a_third(server, shell):
    server.delay_s = 0.4
    out, err = shell.run_on_terminal(f"vf-eval tiny-env -m adder -b {server.url} -n 4 -r 2 -c 2", NO_COLOR="1")
    assert "\x1b[?25l" in err and "\x1b[?25h" in err  # the cursor is hidden, and shown again
    assert "\x1b[31m" not in err and "\x1b[1;" not in err
    frames = re.split(r"(?:\x1b\[\d*[A-Za-z]|\r)+", err)
    lines = [line for frame in frames for line in frame.splitlines()]
    assert max(len(line) for line in lines) <= 80
    assert max(frame.count("\n") for frame in frames) <= 24 // 3
    assert any(re.search(r"[█░]+  4/8  50%", line) for line in lines)
    assert re.search(r"#\d/\d  \d\.\d\d  1 turn .*the sum: \d", err)
    assert "8 of 8 scored" in out


def test_help_starts_with_an_example_and_costs_little(shell):
    done = shell.run("vf-eval --help")
    assert done.returncode == 0
    assert done.stdout.index("vf-eval math-env") < done.stdout.index("--env-args")
    imported = shell.run(f"{sys.executable} -X importtime {shell.folder}/bin/vf-eval --help").stderr
    for heavy in ("aiohttp", "rich", "datasets", "openai", "msgspec", "pydantic"):
        assert not re.search(rf"\| +{heavy}$", imported, re.MULTILINE), heavy
