"""Files of several evaluations: one table, and the whole goes on after whatever ended it."""

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
import termios

import pytest
from aiohttp import web
from loopback import Desk, Loopback, wait_until

from verifiers.eval.config import EvalConfig, configs_of
from verifiers.eval.suite import Suite, entry_of, find_suite, varied
from verifiers.records import read_records
from verifiers.redaction import Redactor

ENVIRONMENT = """
import verifiers as vf


def right(completion, answer):
    return float(completion[-1]["content"] == answer)


def load_environment(difficulty=1, token=""):
    if difficulty not in (1, 2):
        raise ValueError("difficulty is 1 or 2")
    rows = [{"question": f"{i} + {difficulty}", "answer": str(i + difficulty)} for i in range(20)]
    return vf.SingleTurnEnv(dataset=rows, rubric=vf.Rubric(funcs=[right]))
"""

HEAD = "num_examples = 4\nrollouts_per_example = 2\nmax_concurrent = 2\n"
TWO_BY_TWO = """
[[ablation]]
env_id = "sums"
sweep = { model = ["adder", "adder-large"] }
[[ablation]]
env_id = "more-sums"
sweep = { model = ["adder", "adder-large"] }
"""
SWEPT = """
[[ablation]]
env_id = "sums"
model = "adder"
[ablation.sweep]
temperature = [0.0, 1.0]
env_args.difficulty = [1, 2]
"""


def answer(body):
    """Adds; "stubborn" refuses what is above 2, and 0 + n everybody gets wrong."""
    a, b = (int(number) for number in re.findall(r"\d+", body["messages"][-1]["content"]))
    if body["model"] == "stubborn" and a + b > 2:
        return web.json_response({"error": {"message": "beneath me"}}, status=400)
    return str(a + b if a else 99)


@pytest.fixture
def server():
    with Loopback(answer, models=("adder", "adder-large", "stubborn")) as running:
        yield running


@pytest.fixture
def desk(tmp_path):
    made = Desk(tmp_path)
    made.write("sums", ENVIRONMENT)
    made.write("more_sums", ENVIRONMENT)
    return made


def write_suite(desk, server, evaluations, head=HEAD, name="suite.toml"):
    (desk.folder / name).write_text(f'api_base_url = "{server.url}"\n{head}{evaluations}')


def asked(server):
    """Requests since the last call."""
    n = server.requests.total()
    server.requests.clear()
    return n


def table_of(text):
    """The lines of the table: from its heading to the total."""
    lines = text.splitlines()
    start = next(number for number, line in enumerate(lines) if line.split()[:2] == ["environment", "model"])
    end = next(number for number, line in enumerate(lines) if line.strip().startswith("total"))
    return lines[start : end + 1]


def started(desk, server, after):
    """A suite of which `after` rollouts are saved, and whose next two requests hang."""
    server.delay_s = lambda: 0.01 if server.requests.total() <= after else 6.0
    write_suite(desk, server, TWO_BY_TWO)
    process = desk.start("vf-eval suite.toml")
    try:
        wait_until(lambda: server.requests.total() == after + 2 and lines_saved(desk) == after, f"rollout {after}")
    except AssertionError:
        process.kill()
        raise AssertionError(process.communicate()) from None
    return process


def suite_folder(desk):
    (folder,) = desk.folder.glob("outputs/suites/*")
    return folder


def runs_of(desk):
    return sorted(desk.folder.glob("outputs/evals/*/*"))


def lines_saved(desk):
    return sum((run / "results.jsonl").read_bytes().count(b"\n") for run in runs_of(desk) if any(run.iterdir()))


# The table


def test_one_table_at_the_end_has_a_row_for_each_evaluation(desk, server):
    write_suite(desk, server, SWEPT)
    done = desk.run("vf-eval suite.toml")
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    head, *rows, total = table_of(done.stdout)
    assert head.split() == [
        "environment", "model", "arguments", "reward", "scored", "pass@2", "failed", "tokens", "in/out", "time",
    ]  # fmt: skip
    told = [re.split(r"  +", row)[:4] for row in rows]
    assert [row[3] for row in told] == [f"difficulty={d} temperature={t}" for t in ("0.0", "1.0") for d in (1, 2)]
    for row in rows:
        assert re.search(r"0\.750 ± 0\.250  8/8 +0\.750 +0 +80/32 +\d+\.\d s$", row)
    assert re.search(r"total +32/32 +0 +320/128", total)
    for number, run in enumerate(
        re.findall(r"^(?:saved)? +\d+  (\S+)$", done.stdout, re.M),
    ):
        metadata = json.loads((desk.folder / run / "metadata.json").read_text())
        assert metadata["sampling_args"] == {"temperature": number // 2}
    assert f"suite      {suite_folder(desk).relative_to(desk.folder)}" in done.stdout
    assert "4 of 4: reward 0.750 ± 0.250 · 8 of 8 scored" in done.stderr


def test_each_pair_of_environment_and_model_makes_a_grid_too(desk, server):
    write_suite(desk, server, TWO_BY_TWO)
    done = desk.run("vf-eval suite.toml")
    assert done.returncode == 0, done.stderr
    assert "arguments" not in done.stdout
    grid = done.stdout.split("\n\n")[1].splitlines()
    assert [line.split()[0] for line in grid] == ["reward", "sums", "more-sums"]
    assert grid[0].split()[1:] == ["adder", "adder-large"]
    assert grid[1].count("0.750 ± 0.250") == 2


def test_no_grid_where_a_pair_is_missing(desk, server):
    write_suite(desk, server, TWO_BY_TWO + '[[eval]]\nenv_id = "sums"\nmodel = "stubborn"\n')
    done = desk.run("vf-eval suite.toml -n 1 -r 1")
    assert done.returncode == 0, done.stderr
    assert "\nreward" not in done.stdout


def on_terminal(desk, command, columns):
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    variables = desk.variables | {"TERM": "xterm-256color"}
    process = subprocess.Popen(
        shlex.split(command), cwd=desk.folder, env=variables, stdout=theirs, stderr=theirs, stdin=subprocess.DEVNULL
    )
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # the end of a terminal
        while chunk := os.read(ours, 65536):
            shown += chunk
    os.close(ours)
    assert process.wait(30) == 0
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode().replace("\r\n", "\n"))


def test_a_wide_terminal_has_a_line_an_evaluation_and_a_narrow_one_two(desk, server):
    server.delay_s = lambda: 0.2
    write_suite(desk, server, SWEPT)
    wide = on_terminal(desk, "vf-eval suite.toml", 140)
    assert len(table_of(wide)) == 6
    assert re.search(r"[█░]+  evaluation 2 of 4  \d\d%", wide)
    assert "2/4 · sums · adder" in wide
    narrow = on_terminal(desk, "vf-eval suite.toml --resume", 80)
    text = narrow[narrow.index("   reward ") :]
    assert max(len(line) for line in text[: text.index("saved")].splitlines()) <= 80
    assert re.search(r"^2  sums · adder · difficulty=2 temperature=0\.0\n   0\.750 ± 0\.250  8/8 ", text, re.M)


def test_json_is_one_document_with_all(desk, server):
    write_suite(desk, server, TWO_BY_TWO + '[[eval]]\nenv_id = "sms"\nmodel = "adder"\n')
    done = desk.run("vf-eval suite.toml --json")
    assert done.returncode == 3
    told = json.loads(done.stdout)
    assert (told["exit_code"], told["suite"]) == (3, str(suite_folder(desk).relative_to(desk.folder)))
    wrong, *right = told["evals"]  # tables of [[eval]] come first
    assert (wrong["env_id"], wrong["status"], wrong["folder"]) == ("sms", "not run", None)
    assert "no environment 'sms'" in wrong["error"]
    assert [(e["env_id"], e["model"]) for e in right] == [
        (env, model) for env in ("sums", "more-sums") for model in ("adder", "adder-large")
    ]
    for entry in right:
        saved = json.loads((desk.folder / entry["folder"] / "metadata.json").read_text())
        assert saved.items() <= entry.items()
        assert (entry["exit_code"], entry["varied"]) == (0, {})


def test_tables_of_single_evaluations_come_with_v(desk, server):
    write_suite(desk, server, TWO_BY_TWO)
    done = desk.run("vf-eval suite.toml -n 1 -r 1 -v")
    assert len(re.findall(r"^right +0\.000 +×1", done.stderr, re.M)) == 4


# What goes wrong


def test_what_cannot_start_is_said_before_the_first_request_and_stops_nothing_else(desk, server):
    bad = (
        '[[eval]]\nenv_id = "sums"\nmodel = "adder"\n'
        '[[eval]]\nenv_id = "sums"\nmodel = "addr"\n'
        '[[eval]]\nenv_id = "sms"\nmodel = "adder"\n'
        '[[eval]]\nenv_id = "sums"\nmodel = "adder"\nenv_args = { difficulty = 3 }\n'
        '[[eval]]\nenv_id = "sums"\nmodel = "adder"\nenv_args = { dificulty = 2 }\n'
    )
    write_suite(desk, server, bad)
    done = desk.run("vf-eval suite.toml")
    assert done.returncode == 3
    before = done.stderr[: done.stderr.index("── 1 of 5")]
    for number, words in ((2, "no model 'addr'"), (3, "'sms'"), (4, "difficulty is 1 or 2"), (5, "'difficulty'")):
        (line,) = [line for line in before.splitlines() if f"evaluation {number} of 5" in line]
        assert line.startswith("error:") and words in line
        (reason,) = re.findall(rf"^{number}  (.+)$", done.stdout.split("\n\n", 1)[1], re.M)
        assert words in reason
    assert "4 of 5 cannot start" in before
    _, *rows, _ = table_of(done.stdout)
    assert [row.endswith("not run") for row in rows] == [False, True, True, True, True]
    assert asked(server) == 8
    assert done.stderr.splitlines()[-1] == "Run what is missing or failed with: vf-eval suite.toml --resume"


def test_rollouts_without_a_score_are_told_with_their_reason_and_exit_with_1(desk, server):
    models = 'sweep = { model = ["stubborn", "adder"] }\n'
    write_suite(desk, server, f'[[ablation]]\nenv_id = "sums"\n{models}')
    done = desk.run("vf-eval suite.toml")
    assert done.returncode == 1
    assert re.search(r"1  sums +stubborn +0\.500 ± 0\.500 +4/8 +\S+ +4 ", done.stdout)
    assert re.search(r"^1  4 of 8 without a score: model · ModelRequestError: .*beneath me", done.stdout, re.M)
    asked(server)
    again = desk.run("vf-eval suite.toml --resume")  # the failed ones, and nothing else
    assert (again.returncode, asked(server)) == (1, 4)


def test_one_that_breaks_outside_of_its_rollouts_does_not_stop_the_others(desk, server):
    broken = ENVIRONMENT.replace("    return vf.SingleTurnEnv(", "    return Broken(").replace(
        "def load_environment",
        "class Broken(vf.SingleTurnEnv):\n"
        "    def eval_rows(self, n=-1):\n"
        "        if n > 1:\n            raise OSError('the dataset is gone')\n"
        "        return super().eval_rows(n)\n\n\ndef load_environment",
    )
    desk.write("broken", broken)
    entries = "".join(f'[[eval]]\nenv_id = "{name}"\nmodel = "adder"\n' for name in ("broken", "sums"))
    write_suite(desk, server, entries)
    done = desk.run("vf-eval suite.toml")
    assert done.returncode == 3
    assert "Traceback" not in done.stderr
    assert re.search(r"^1  OSError: the dataset is gone", done.stdout, re.M)
    assert re.search(r"^2  sums +adder +0\.750", done.stdout, re.M)


def test_a_run_to_resume_in_one_table_is_refused(desk, server):
    write_suite(desk, server, TWO_BY_TWO + '[[eval]]\nenv_id = "sums"\nresume_path = "outputs/evals/x"\n')
    done = desk.run("vf-eval suite.toml")
    assert done.returncode == 2
    assert "--resume" in done.stderr and asked(server) == 0


def test_two_processes_do_not_run_the_same_suite(desk, server):
    server.delay_s = lambda: 60.0
    write_suite(desk, server, TWO_BY_TWO)
    first = desk.start("vf-eval suite.toml")
    wait_until(lambda: server.requests.total() > 0, "the first request")
    second = desk.run("vf-eval suite.toml --resume")
    assert second.returncode == 3
    assert "is being run by another process" in second.stderr
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=120)


def test_secrets_in_arguments_are_not_written(desk, server):
    token, key = "tok-0123456789abcdef", "key-fedcba9876543210"
    sweep = f'sweep = {{ model = ["adder", "addr"], env_args.token = ["{token}", "none"] }}'
    write_suite(desk, server, f'[[ablation]]\nenv_id = "sums"\n{sweep}\n')
    command = f"vf-eval suite.toml -n 1 -r 1 --header 'Authorization: Bearer {key}'"
    done = desk.run(command, MY_TOKEN=token)
    asked(server)
    again = desk.run(f"{command} --resume", MY_TOKEN=token)
    assert (again.returncode, asked(server)) == (3, 0)  # still it is known to be the same
    assert "token=***" in again.stdout and "Run what is missing" in again.stderr
    written = (suite_folder(desk) / "suite.json").read_text() + done.stdout + done.stderr + again.stdout + again.stderr
    assert token not in written and key not in written


# Going on


def test_ctrl_c_ends_in_one_line_that_goes_on_with_exactly_what_is_missing(desk, server):
    process = started(desk, server, after=12)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    _, *rows, total = table_of(out)
    assert [row.split()[-1] for row in rows[1:]] == ["interrupted", "started", "started"]
    assert "12/16" in total
    last = err.splitlines()[-1]
    assert last.startswith("interrupted: 1 of 4 evaluations are finished. Go on with: ")
    assert err.count("Go on with") == 1

    asked(server)
    server.delay_s = lambda: 0.0
    done = desk.run(last.partition("Go on with: ")[2])
    assert done.returncode == 0, done.stderr
    assert asked(server) == 20
    assert "1 of 4 evaluations are finished; the others follow" in done.stderr
    assert re.search(r"total +32/32 +0 +320/128", table_of(done.stdout)[-1])
    assert len(runs_of(desk)) == 4
    for run in runs_of(desk):
        keys = [record.key for record in read_records(run / "results.jsonl")]
        assert sorted(keys) == [(i, j) for i in range(4) for j in range(2)]


def test_after_kill_9_nothing_that_was_saved_is_asked_again(desk, server):
    process = started(desk, server, after=18)
    process.kill()
    process.communicate(timeout=120)
    server.delay_s = lambda: 0.0
    asked(server)
    done = desk.run("vf-eval suite.toml --resume")
    assert done.returncode == 0, done.stderr
    assert asked(server) == 14
    assert "2 of 4 evaluations are finished" in done.stderr
    assert re.search(r"total +32/32 +0 +320/128", table_of(done.stdout)[-1])
    assert len(runs_of(desk)) == 4


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
def test_an_interruption_while_an_environment_is_made_says_how_to_go_on_too(desk, server, number):
    slow = ENVIRONMENT.replace("import verifiers as vf", "import pathlib, time\nimport verifiers as vf").replace(
        "    if difficulty", "    pathlib.Path('made').touch()\n    time.sleep(250)\n    if difficulty"
    )
    desk.write("more_sums", slow)
    write_suite(desk, server, TWO_BY_TWO)
    process = desk.start("vf-eval suite.toml")
    wait_until((desk.folder / "made").exists, "the environment")
    process.send_signal(number)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert out.count("not started") == 4
    assert err.splitlines()[-1].endswith("Go on with: vf-eval suite.toml --resume")
    assert asked(server) == 0


def test_what_is_half_done_shows_what_it_has_until_its_turn_comes(desk, server):
    process = started(desk, server, after=12)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    server.models = ("adder",)  # the half-done one cannot go on today
    server.delay_s = lambda: 0.0
    done = desk.run("vf-eval suite.toml --resume")
    assert done.returncode == 3
    assert re.search(r"^2  sums +adder-large +\S+ ± \S+ +4/8 .*broke off$", done.stdout, re.M)
    assert re.search(r"^2  no model 'adder-large'", done.stdout, re.M)


def test_a_finished_suite_shows_its_table_again_without_a_server(desk, server):
    write_suite(desk, server, SWEPT)
    first = desk.run("vf-eval suite.toml")
    (desk.modules / "sums.py").write_text("raise RuntimeError('not needed')")
    again = desk.run("vf-eval suite.toml -b http://127.0.0.1:9/v1 --resume")
    assert again.returncode == 0, again.stderr
    assert "4 of 4 evaluations are finished: nothing to run" in again.stderr
    assert again.stdout == first.stdout
    by_folder = desk.run(f"vf-eval suite.toml --resume-path {suite_folder(desk)}")
    assert table_of(by_folder.stdout) == table_of(first.stdout)


def test_without_resume_a_new_suite_is_begun_and_the_newest_is_gone_on_with(desk, server):
    write_suite(desk, server, TWO_BY_TWO)
    new = desk.run("vf-eval suite.toml -n 1 -r 1 --resume")
    assert "was not run before: starting a new suite" in new.stderr
    asked(server)
    desk.run("vf-eval suite.toml -n 1 -r 1")
    assert asked(server) == 4
    assert len(list(desk.folder.glob("outputs/suites/suite--*"))) == 2
    write_suite(desk, server, TWO_BY_TWO, name="other.toml")
    assert "starting a new suite" in desk.run("vf-eval other.toml -n 1 -r 1 --resume").stderr


def test_a_changed_file_runs_what_was_changed_and_names_it(desk, server):
    write_suite(desk, server, SWEPT)
    desk.run("vf-eval suite.toml")
    asked(server)
    changed = SWEPT.replace("[0.0, 1.0]", "[0.0, 0.5]") + '[[eval]]\nenv_id = "more-sums"\nmodel = "adder"\n'
    write_suite(desk, server, changed)
    done = desk.run("vf-eval suite.toml --resume")
    assert done.returncode == 0, done.stderr
    assert "evaluation 1 is new in the file" in done.stderr
    assert "evaluation 4 was changed and is run anew: sampling_args.temperature: saved 1.0, now 0.5" in done.stderr
    assert asked(server) == 3 * 8
    assert len(table_of(done.stdout)) == 7

    write_suite(desk, server, SWEPT)  # as it was: the old runs count again
    done = desk.run("vf-eval suite.toml --resume")
    assert (done.returncode, asked(server)) == (0, 0)
    assert "no longer in the file: more-sums · adder; its run stays in" in done.stderr
    assert len(table_of(done.stdout)) == 6


def test_a_mended_evaluation_is_the_only_one_that_runs(desk, server):
    evaluations = '[[eval]]\nenv_id = "sums"\nmodel = "adder"\n[[eval]]\nenv_id = "{}"\nmodel = "adder"\n'
    write_suite(desk, server, evaluations.format("more-sms"))
    assert desk.run("vf-eval suite.toml").returncode == 3
    assert asked(server) == 8
    write_suite(desk, server, evaluations.format("more-sums"))
    done = desk.run("vf-eval suite.toml --resume")
    assert done.returncode == 0, done.stderr
    assert asked(server) == 8
    assert [row.split()[1] for row in table_of(done.stdout)[1:3]] == ["sums", "more-sums"]


def test_more_examples_are_added_to_what_is_there(desk, server):
    write_suite(desk, server, TWO_BY_TWO)
    desk.run("vf-eval suite.toml -n 2")
    assert asked(server) == 16
    done = desk.run("vf-eval suite.toml -n 3 --resume")
    assert done.returncode == 0, done.stderr
    assert asked(server) == 8
    assert "24/24" in table_of(done.stdout)[-1]
    assert len(runs_of(desk)) == 4


def test_a_run_of_another_version_of_the_environment_is_run_anew(desk, server):
    def install(version):
        info = desk.modules / f"sums-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: sums\nVersion: {version}\nRequires-Dist: verifiers\n"
        )
        (info / "RECORD").write_text("sums.py,,\n")
        return info

    old = install("0.1.0")
    write_suite(desk, server, TWO_BY_TWO)
    assert desk.run("vf-eval suite.toml -n 1 -r 1").returncode == 0
    old.rename(desk.folder / "removed")
    install("0.2.0")
    asked(server)
    done = desk.run("vf-eval suite.toml -n 1 -r 1 --resume")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("environment version: saved '0.1.0', now '0.2.0'") == 2
    assert asked(server) == 2


def test_a_run_whose_folder_is_gone_is_run_anew(desk, server):
    write_suite(desk, server, TWO_BY_TWO)
    desk.run("vf-eval suite.toml -n 1 -r 1")
    runs_of(desk)[0].rename(desk.folder / "elsewhere")
    asked(server)
    done = desk.run("vf-eval suite.toml -n 1 -r 1 --resume")
    assert (done.returncode, asked(server)) == (0, 1)


# Which earlier evaluation is which


def entries_of(*configs):
    return [entry_of(config, Redactor()) for config in configs]


def config(**values):
    return EvalConfig(env_id="sums", model="m", **values)


def test_two_servers_of_one_model_keep_their_runs_in_any_order_and_at_new_addresses(tmp_path):
    source, base = tmp_path / "s.toml", tmp_path / "outputs"
    a, b, c = (config(api_base_url=f"http://{name}/v1") for name in "abc")
    with Suite.create(source, base, entries_of(a, b), ["vf-eval"]) as suite:
        suite.begin(0, base / "run-a")
        suite.begin(1, base / "run-b")
    turned = Suite.resume(suite.folder, entries_of(b, a))
    assert [turned.run_folder(index) for index in (0, 1)] == [base / "run-b", base / "run-a"]
    moved = Suite.resume(suite.folder, entries_of(c, b))
    assert [moved.run_folder(index) for index in (0, 1)] == [base / "run-a", base / "run-b"]
    assert turned.notes == moved.notes == []


def test_evaluations_that_are_wholly_alike_keep_a_run_each(tmp_path):
    source, base = tmp_path / "s.toml", tmp_path / "outputs"
    with Suite.create(source, base, entries_of(config(), config()), ["vf-eval"]) as suite:
        suite.begin(0, base / "first")
        suite.begin(1, base / "second")
    again = Suite.resume(suite.folder, entries_of(config(), config(), config()))
    assert [again.run_folder(index) for index in range(3)] == [base / "first", base / "second", None]


def test_what_costs_nothing_to_change_is_no_other_evaluation():
    free = {"max_concurrent": 3, "max_failed": 0.5, "verbose": True, "json": True, "timeout_s": 9.0, "max_retries": 2}
    assert entries_of(config(**free)) == entries_of(config())
    (one, *others) = entries_of(config(), config(seed=1), config(max_tokens=9), config(env_args={"x": 1}))
    assert all(other.asked != one.asked for other in others)


def test_a_suite_moves_with_its_folder_of_results(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    with Suite.create(old / "s.toml", old / "outputs", entries_of(config()), ["vf-eval"]) as suite:
        suite.begin(0, old / "outputs" / "evals" / "run")
    old.rename(new)
    found = find_suite(new / "s.toml", new / "outputs")
    assert found is not None
    assert Suite.resume(found, entries_of(config())).run_folder(0) == new / "outputs" / "evals" / "run"


def test_only_settings_that_differ_between_alike_evaluations_are_shown(tmp_path):
    file = tmp_path / "s.toml"
    file.write_text(SWEPT + '[[eval]]\nenv_id = "more-sums"\nmodel = "adder"\nenv_args = { difficulty = 2 }\n')
    swept = [{"difficulty": d, "temperature": t} for t in (0.0, 1.0) for d in (1, 2)]
    assert varied(configs_of(str(file), {}), Redactor()) == [{}, *swept]
