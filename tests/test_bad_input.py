"""Bad input to `vf-eval`: at most three lines on stderr, an honest exit code, and nothing lost."""

from __future__ import annotations

import json
import shlex
import signal
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from loopback import Desk, Loopback, wait_until

from verifiers.records import RolloutRecord, read_records

ENVIRONMENTS = {
    "rows_env": """
        import verifiers as vf

        def load_environment(rows=None, lazy=False):
            rubric = vf.Rubric(funcs=[lambda completion: 1.0])
            return vf.SingleTurnEnv(dataset=(lambda: rows) if lazy else rows, rubric=rubric)
    """,
    "rewards_env": """
        import verifiers as vf

        def fine(completion): return 1.0
        def raises(completion): raise RuntimeError("grader\\nfell over")
        def nan(completion): return float("nan")
        def infinite(completion): return -float("inf")
        def none(completion): return None
        def text(completion): return "1.0"
        def several(completion): return [1.0, 2.0]
        def group_short(completions) -> list[float]: return [1.0]
        def group_long(completions) -> list[float]: return [1.0] * (len(completions) + 1)
        def group_none(completions): return None
        def group_raises(completions) -> list[float]: raise ValueError("cannot compare")
        def group_half(completions): return [1.0, None]
        def group_fine(completions): return [1.0 for _ in completions]

        def load_environment(reward="fine", weight=1.0):
            rows = [{"question": f"{i}", "answer": "x"} for i in range(20)]
            return vf.SingleTurnEnv(
                dataset=rows, rubric=vf.Rubric(funcs=[globals()[reward], fine], weights=[weight, 1.0])
            )
    """,
    "tools_env": """
        import verifiers as vf

        def measure(x: int) -> str:
            "Measures."
            raise RuntimeError("the ruler\\nbroke")

        def load_environment():
            rubric = vf.Rubric(funcs=[lambda completion: 1.0])
            return vf.ToolEnv(tools=[measure], dataset=[{"question": "how long?"}], rubric=rubric, max_turns=5)
    """,
    "talk_env": """
        import verifiers as vf

        class Talk(vf.MultiTurnEnv):
            async def env_response(self, messages, state, **kwargs):
                return [{"role": "user", "content": "go on"}]

        def says_tokens(completion):
            return float(any("tokens" in m["content"] for m in completion))

        def load_environment():
            rubric = vf.Rubric(funcs=[says_tokens])
            return Talk(dataset=[{"question": "talk"}], rubric=rubric, max_turns=9)
    """,
    "bare_env": "VALUE = 1",
    "raising_env": """
        def load_environment(path="rows.csv"):
            return open(path)
    """,
    "slow_env": """
        import pathlib, time
        import verifiers as vf

        class Slow(vf.SingleTurnEnv):
            @vf.teardown
            async def put_away(self):
                pathlib.Path("put_away").touch()
                time.sleep(1.5)

        def load_environment(at):
            pathlib.Path("loading").touch()
            if at == "start":
                time.sleep(250)
            rubric = vf.Rubric(funcs=[lambda completion: 1.0])
            return Slow(dataset=[{"question": "x"}], rubric=rubric)
    """,
}
TOO_LONG = "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens."


def reply(body: dict[str, Any]) -> Any:
    last = body["messages"][-1]
    if body["model"] == "small" and (len(body["messages"]) > 3 or body["messages"][0]["content"] != "talk"):
        error = {"message": TOO_LONG, "type": "invalid_request_error", "code": "context_length_exceeded"}
        return web.json_response({"error": error}, status=400)
    if body.get("tools") and last["role"] != "tool":
        call = {"id": "c1", "type": "function", "function": {"name": "measure", "arguments": '{"x": 1}'}}
        return {"role": "assistant", "content": None, "tool_calls": [call]}
    return "very long indeed"


@pytest.fixture(scope="module")
def server():
    with Loopback(reply, models=("m", "small")) as running:
        yield running


@pytest.fixture
def desk(tmp_path, server):
    made = Desk(tmp_path)
    for module, text in ENVIRONMENTS.items():
        indent = len(text) - len(text.lstrip("\n ")) - 1
        made.write(module, text.replace("\n" + " " * indent, "\n"))
    made.variables["OPENAI_BASE_URL"] = server.url
    return made


def refusal(desk: Desk, command: str, code: int = 3) -> str:
    """The one line that says why nothing was run."""
    done = desk.run(command)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert not (desk.folder / "outputs").exists()
    return line


def records_of(desk: Desk) -> list[RolloutRecord]:
    return list(read_records(desk.saved_run() / "results.jsonl"))


def test_a_module_without_load_environment_is_told_with_its_file(desk):
    line = refusal(desk, "vf-eval bare-env -m m")
    assert str(desk.modules / "bare_env.py") in line and "load_environment(**args)" in line


def test_what_load_environment_raises_is_told_with_the_authors_line(desk):
    line = refusal(desk, "vf-eval raising-env -m m")
    assert "FileNotFoundError" in line and "rows.csv" in line and "raising_env.py:3" in line


def test_a_module_that_belongs_to_another_package_is_not_taken(desk):
    desk.write("theirs", "VALUE = 1")
    info = desk.modules / "zz_library-2.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: zz-library\nVersion: 2.0\n")
    (info / "RECORD").write_text("theirs.py,,\n")
    assert "zz-library 2.0" in refusal(desk, "vf-eval theirs -m m")


def test_a_name_of_the_standard_library_is_refused(desk):
    assert "standard library" in refusal(desk, "vf-eval json -m m")


@pytest.mark.parametrize(
    ("lazy", "rows", "told"),
    [
        (True, [], "the dataset is empty"),
        (False, [], "the dataset is empty"),
        (True, [{"text": "a"}], "needs a column 'question' (text) or 'prompt' (messages); it has ['text']"),
        (False, [{"question": 5}], "row 0: 'question' must be text"),
        (True, [{"question": "a"}, {"question": None}], "row 1: 'question' must be text, it is missing"),
        (False, [{"question": "a"}, "b"], "row 1: a row is a dict, got str: 'b'"),
        (True, [{"prompt": 5}], "row 0: 'prompt' is no list of messages"),
        (False, [{"prompt": [1]}], "row 0: 'prompt' is no list of messages"),
        (True, {"question": ["a"]}, "a dataset is a list of rows or a datasets.Dataset, got a dict"),
        (False, 7, "a dataset is a list of rows or a datasets.Dataset, got int"),
    ],
)
def test_rows_that_cannot_be_are_refused_before_the_first_request(desk, server, lazy, rows, told):
    before = sum(server.requests.values())
    arguments = shlex.quote(json.dumps({"rows": rows, "lazy": lazy}))
    assert told in refusal(desk, f"vf-eval rows-env -m m -a {arguments}")
    assert sum(server.requests.values()) == before


@pytest.mark.parametrize(
    ("reward", "told"),
    [
        ("raises", "raised RuntimeError: grader fell over"),
        ("nan", "returned nan, not a finite number"),
        ("infinite", "returned -inf, not a finite number"),
        ("none", "returned None, not a number"),
        ("text", "returned text '1.0', not a number"),
        ("several", "returned list, not a number"),
        ("group_short", "returned 1 scores for 2 rollouts"),
        ("group_long", "returned 3 scores for 2 rollouts"),
        ("group_none", "returned NoneType"),
        ("group_raises", "raised ValueError: cannot compare"),
    ],
)
def test_a_broken_reward_is_a_fault_and_no_zero_and_its_rollouts_are_saved(desk, reward, told):
    done = desk.run(f"vf-eval rewards-env -m m -n 3 -r 2 -a reward={reward} --json")
    assert done.returncode == 1, done.stderr
    progress, warning, error = done.stderr.splitlines()
    assert "0/6 done" in progress
    assert warning.startswith("WARNING") and told in warning
    assert error.startswith("error: every rollout failed (reward)") and told in error
    metadata = json.loads(done.stdout)
    assert (metadata["n_scored"], metadata["avg_reward"]) == (0, None)
    records = records_of(desk)
    assert len(records) == 6
    for record in records:
        broken, fine = record.scores[:2]
        assert record.reward is None and record.messages[0]["content"] == "very long indeed"
        assert (broken.value, broken.status, broken.side) == (None, "fault", "reward")
        assert fine.value == 1.0


def test_a_broken_metric_of_weight_0_costs_no_reward(desk):
    done = desk.run("vf-eval rewards-env -m m -n 3 -r 1 -a reward=raises -a weight=0 --json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["avg_reward"] == 1.0


def test_a_group_reward_that_gives_some_numbers_scores_these_rollouts(desk):
    done = desk.run("vf-eval rewards-env -m m -n 3 -r 2 -a reward=group_half --json")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 3
    assert "3 of 6 rollouts have no score" in done.stderr
    metadata = json.loads(done.stdout)
    assert (metadata["n_scored"], metadata["avg_reward"]) == (3, 2.0)
    assert [record.reward for record in sorted(records_of(desk), key=lambda r: r.key)] == [2.0, None] * 3


def test_a_tool_that_raises_tells_the_model_and_the_rollout_goes_on(desk):
    done = desk.run("vf-eval tools-env -m m -n 1 -r 1 --json")
    assert done.returncode == 0, done.stderr
    assert len(done.stderr.splitlines()) == 1
    (record,) = records_of(desk)
    call, result, answer = record.messages
    assert result["tool_call_id"] == call["tool_calls"][0]["id"] and "the ruler" in result["content"]
    assert answer["content"] == "very long indeed"
    assert (record.status, record.reward, record.errors) == ("scored", 1.0, [])


def test_a_context_that_is_full_from_the_start_leaves_no_answer(desk):
    done = desk.run("vf-eval rewards-env -m small -n 2 -r 1")
    assert done.returncode == 1
    (error,) = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert "every rollout failed (model)" in error and "the context is full" in error
    for record in records_of(desk):
        assert (record.messages, record.reward, record.status) == ([], None, "failed")
        assert record.is_truncated


def test_a_context_that_fills_up_stops_the_rollout_and_its_error_is_no_answer(desk):
    done = desk.run("vf-eval talk-env -m small -n 1 -r 1 --json")
    assert done.returncode == 0, done.stderr
    (record,) = records_of(desk)
    assert (record.stop_condition, record.is_truncated, record.errors) == ("prompt_too_long", True, [])
    assert [turn.finish_reason for turn in record.turns] == ["stop", "stop"]
    assert TOO_LONG not in json.dumps(record.messages)
    assert record.reward == 0.0  # what was said is scored, and the server's "tokens" is not part of it


@pytest.fixture
def saved(desk) -> Path:
    assert desk.run("vf-eval rewards-env -m m -n 3 -r 1").returncode == 0
    return desk.saved_run()


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("vf-eval tools-env -m m -n 3 -r 1", "environment: saved 'rewards-env', now 'tools-env'"),
        ("vf-eval rewards-env -m small -n 3 -r 1", "model: saved 'm', now 'small'"),
        ("vf-eval rewards-env -m m -n 3 -r 2", "rollouts_per_example: saved 1, now 2"),
        ("vf-eval rewards-env -m m -n 3 -r 1 -T 1", "sampling_args.temperature: saved not given, now 1.0"),
        ("vf-eval rewards-env -m m -n 3 -r 1 -a reward=none", "env_args.reward: saved not given, now 'none'"),
        ("vf-eval rewards-env -m m -n 2 -r 1", "num_examples: saved 3, now 2"),
        ("vf-eval rewards-env -m m -n 3 -r 1 --seed 4", "seed: saved 0, now 4"),
    ],
)
def test_the_folder_of_another_run_is_refused_naming_the_difference_and_left_alone(desk, saved, command, told):
    before = {file.name: file.read_bytes() for file in saved.iterdir()}
    done = desk.run(f"{command} --resume-path {saved}")
    assert done.returncode == 3
    (line,) = done.stderr.splitlines()
    assert told in line and str(saved) in line
    assert {file.name: file.read_bytes() for file in saved.iterdir()} == before


def test_a_folder_without_a_run_is_refused(desk):
    assert "no run to resume in nowhere" in refusal(desk, "vf-eval rewards-env -m m --resume-path nowhere")


def test_a_place_that_cannot_be_written_is_named(desk):
    (desk.folder / "file").touch()
    line = refusal(desk, "vf-eval rewards-env -m m -o file")
    assert "cannot write results to file/" in line and "-o" in line


def test_a_disk_that_fills_up_while_groups_wait_loses_nothing(desk, server):
    command = "vf-eval rewards-env -m m -n 6 -r 8 -c 3 -a reward=group_fine"
    before = sum(server.requests.values())
    done = desk.run(f"bash -c 'ulimit -f 24; exec {command}'")  # no file above 24 kB
    assert done.returncode == 3, done.stderr
    (error,) = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert "cannot write to" in error and "Traceback" not in done.stderr
    folder = desk.saved_run()
    kept = len((folder / "results.jsonl").read_bytes().splitlines())
    waiting = {json.loads(line)["record"]["seed"] for line in (folder / "journal.jsonl").read_bytes().splitlines()}
    waiting -= {record.seed for record in records_of(desk)}
    assert 0 < kept + len(waiting) < 48
    asked = sum(server.requests.values()) - before
    done = desk.run(f"{command} --resume-path {folder}")
    assert done.returncode == 0, done.stderr
    assert sum(server.requests.values()) - before - asked == 48 - kept - len(waiting)
    assert len({record.key for record in records_of(desk)}) == len(records_of(desk)) == 48


def test_json_says_why_nothing_was_run(desk):
    done = desk.run("vf-eval bare-env -m m --json")
    assert done.returncode == 3
    assert json.loads(done.stdout) == {"error": done.stderr.removeprefix("error: ").strip()}


def test_a_named_key_that_is_not_set_is_said(desk):
    done = desk.run("vf-eval rewards-env -m m -n 1 -r 1 -k NO_SUCH_KEY")
    assert done.returncode == 0
    assert "note: NO_SUCH_KEY (-k) is not set: no key is sent" in done.stderr


def test_an_interrupt_while_the_environment_loads_is_one_line(desk):
    process = desk.start("vf-eval slow-env -m m -a at=start")
    wait_until((desk.folder / "loading").exists, "load_environment")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (130, "")
    assert err == "interrupted before the first rollout: nothing was run\n"


def test_an_interrupt_after_the_last_rollout_says_that_it_is_saved(desk):
    process = desk.start("vf-eval slow-env -m m -n 1 -r 1 -a at=end")
    wait_until((desk.folder / "put_away").exists, "the teardown")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert len(err.splitlines()) == 3 and "what has finished is saved" in err
    command = err.splitlines()[-1].strip()
    assert "1 of 1 rollouts are there" in desk.run(command).stderr
    assert len(records_of(desk)) == 1
