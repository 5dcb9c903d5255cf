"""`vf debug`: one rollout, message by message, from a server on this machine or from a saved run."""

import contextlib
import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from loopback import ROOT, Loopback, outside_variables, wait_until

import verifiers as vf
from verifiers.eval.transcript import Transcript
from verifiers.records import content_hash
from verifiers.run import rollout_seed

ENVIRONMENT = """
import verifiers as vf

class Counting(vf.MultiTurnEnv):
    async def env_response(self, messages, state, **kwargs):
        return [{"role": "user", "content": f"go on after {messages[-1]['content']}"}]

def right(completion, answer):
    return float(completion[-1]["content"] == answer)

def broken(completion):
    raise KeyError("no such thing")

def unsure(completion):
    raise vf.Undecided("too close to call")

def load_environment(fault: bool = False):
    rows = [{"question": f"Question {n}", "answer": "one"} for n in range(5)]
    funcs = [right, broken] if fault else [right, unsure]
    rubric = vf.Rubric(funcs=funcs, weights=[1.0, 1.0 if fault else 0.0])
    return Counting(eval_dataset=rows, rubric=rubric, max_turns=2)
"""


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-P", "-c", "from verifiers.cli.main import main; main()", *arguments]


def variables(folder: Path) -> dict[str, str]:
    return outside_variables() | {"PYTHONPATH": f"{ROOT}{os.pathsep}{folder}", "TERM": "xterm"}


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command(*arguments), capture_output=True, text=True, cwd=folder, env=variables(folder), timeout=200,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "zz_count.py").write_text(ENVIRONMENT)
    return tmp_path


@pytest.fixture
def server():
    with Loopback(lambda body: "one") as running:
        yield running


def test_every_message_and_every_score_is_shown_once_in_order(folder, server):
    done = run(folder, "debug", "zz-count", "--example", "3", "-m", "m", "-b", server.url)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "══ zz-count, example 3, try 0, m"
    assert [line for line in lines if line.startswith("── ")] == ["── user", "── assistant", "── user", "── assistant"]
    assert done.stdout.count("Question 3") == done.stdout.count("go on after one") == 1
    assert "reward 1 · status scored · stopped by max_turns_reached · 2 turns" in done.stdout
    assert "undecided" in done.stdout and "too close to call" in done.stdout
    assert not (folder / "outputs").exists()


def test_the_rollout_has_the_seed_it_has_in_an_evaluation(folder, server):
    evaluated = ["eval", "zz-count", "-m", "m", "-b", server.url, "-n", "2", "-r", "3", "--seed", "5"]
    assert run(folder, *evaluated).returncode == 0
    (results,) = folder.glob("outputs/**/results.jsonl")
    records = [json.loads(line) for line in results.read_text().splitlines()]
    wanted = [r["seed"] for r in records if (r["example_id"], r["rollout_index"]) == (1, 2)]
    server.requests.clear()
    run(folder, "debug", "zz-count", "--example", "1", "--try", "2", "--seed", "5", "-m", "m", "-b", server.url)
    assert list(server.requests) == wanted


async def test_tries_are_numbered_from_the_first():
    from verifiers.run import Run

    env = vf.SingleTurnEnv(dataset=[{"question": "?"}], rubric=vf.Rubric([lambda completion: 1.0]))
    rows = env.eval_rows()
    run = Run(env, rows, client=vf.ScriptedClient("x"), model="m", rollouts_per_example=2, first_try=4)
    records = await run.execute()
    assert [record.rollout_index for record in records] == [4, 5]
    assert records[0].seed == rollout_seed(0, content_hash(rows[0]), 0, 4)


def test_a_key_that_a_model_repeats_is_not_shown(folder):
    with Loopback(lambda body: "my key is sk-0123456789abcdef") as server:
        os.environ["ZZ_API_KEY"] = "sk-0123456789abcdef"
        try:
            done = run(folder, "debug", "zz-count", "-m", "m", "-b", server.url, "-k", "ZZ_API_KEY")
        finally:
            del os.environ["ZZ_API_KEY"]
    assert "my key is ***" in done.stdout
    assert "sk-0123456789abcdef" not in done.stdout


def test_a_reward_function_that_fails_is_named_and_the_code_is_1(folder, server):
    done = run(folder, "debug", "zz-count", "-a", "fault=true", "-m", "m", "-b", server.url)
    assert done.returncode == 1
    assert "not scored · status fault" in done.stdout
    assert "KeyError" in done.stdout and "broken" in done.stdout


def test_what_is_missing_is_told_on_one_line(folder, server):
    for arguments, code in ((["debug"], 2), (["debug", "zz-count", "--example", "9", "-b", server.url, "-m", "m"], 3)):
        done = run(folder, *arguments)
        assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (code, "", 1), done.stderr
    assert "the evaluation rows are 0 to 4" in done.stderr
    refused = run(folder, "debug", "zz-count", "-m", "m", "-b", "http://127.0.0.1:9/v1")
    assert (refused.returncode, refused.stdout, len(refused.stderr.splitlines())) == (3, "", 1)


def test_a_saved_rollout_is_shown_without_model_and_environment(folder, server):
    run(folder, "eval", "zz-count", "-m", "m", "-b", server.url, "-n", "2", "-r", "2")
    (saved,) = folder.glob("outputs/evals/*/*")
    (folder / "zz_count.py").unlink()
    server.requests.clear()
    done = run(folder, "debug", "--replay", str(saved), "--example", "1", "--try", "1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("══ zz-count, example 1, try 1, m")
    assert "go on after one" in done.stdout and "too close to call" in done.stdout and "reward 1" in done.stdout
    assert not server.requests
    assert "the first of 4 rollouts" in run(folder, "debug", "--replay", str(saved)).stderr
    missing = run(folder, "debug", "--replay", str(saved), "--example", "7")
    assert (missing.returncode, missing.stdout) == (3, "")
    assert "4 rollouts, of the examples 0, 1" in missing.stderr
    assert run(folder, "debug", "--replay", "nowhere").returncode == 3


def test_messages_come_while_the_rollout_goes_on(folder):
    answers = iter([])

    def answer(body):
        import time

        if len(body["messages"]) > 1:
            wait_until(lambda: next(answers, None) or time.monotonic() > deadline[0], "the test's word")
        return "one"

    import time

    deadline = [time.monotonic() + 200]
    with Loopback(answer) as server:
        arguments = command("debug", "zz-count", "-m", "m", "-b", server.url)
        process = subprocess.Popen(
            arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=folder, env=variables(folder)
        )
        assert process.stdout is not None
        seen = [process.stdout.readline() for _ in range(7)]
        assert "go on after one\n" in seen  # while the server holds back its second answer
        deadline[0] = 0.0
        rest = process.stdout.read()
        assert process.wait(120) == 0
        process.stdout.close()
    assert "reward 1" in rest


def test_roles_are_coloured_on_a_terminal_and_plain_elsewhere(folder, server):
    here, there = pty.openpty()
    with os.fdopen(there, "w") as out:
        Transcript(out).message({"role": "assistant", "content": "a\x1b[2Jb"})
    shown = b""
    with contextlib.suppress(OSError):  # the end of a terminal; what is written comes in pieces
        while piece := os.read(here, 1000):
            shown += piece
    os.close(here)
    assert shown == "\x1b[32m── assistant\x1b[0m\r\na�[2Jb\r\n".encode()
    plain = io.StringIO()
    Transcript(plain).message({"role": "tool", "content": [{"type": "text", "text": "t"}, {"type": "image_url"}]})
    assert plain.getvalue() == "── tool\nt\n[parts that are no text: 1]\n"


def test_a_rewritten_context_is_shown_anew_and_said():
    plain = io.StringIO()
    transcript = Transcript(plain)
    transcript.conversation([{"role": "user", "content": "a"}])
    transcript.conversation([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])
    assert plain.getvalue() == "── user\na\n── assistant\nb\n"
    transcript.conversation([{"role": "user", "content": "short"}])
    assert plain.getvalue().endswith("── the context was rewritten:\n── user\nshort\n")
