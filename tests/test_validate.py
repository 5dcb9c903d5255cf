"""`vf-validate` as a program: honest environments pass it, and each kind of dishonest one fails its own check."""

import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from loopback import ROOT, outside_variables

from verifiers.eval.offline import RefusedHere, is_near, watched
from verifiers.eval.replies import cut_off, decoys, drafts, forms_of, hedges, listings, other_answer, part_of, stands_in
from verifiers.parsers import Parser, XMLParser

HONEST = """
import verifiers as vf

def rows(count):
    return [{"question": f"What is {n} + {n}?", "answer": str(1000 + 2 * n)} for n in range(1, count + 1)]

def right(parser, completion, answer):
    return float(parser.parse_answer(completion) == answer)

seen = []

def load_environment(count: int = 6):
    parser = vf.Parser(extract_fn=vf.extract_boxed_answer)
    return vf.SingleTurnEnv(dataset=rows(count), parser=parser, rubric=vf.Rubric(funcs=[right], parser=parser))
"""


class Validated:
    """The environment `zz-env` in a folder, and what `vf validate` says of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, source: str, **declared: object) -> None:
        (self.folder / "zz_env.py").write_text(source)
        lines = [f"{key} = {json.dumps(value)}" for key, value in declared.items()]
        text = "[project]\nname = 'zz-env'\nversion = '1'\n[tool.verifiers.validate]\n" + "\n".join(lines)
        (self.folder / "pyproject.toml").write_text(text)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        variables = outside_variables() | {"PYTHONPATH": f"{ROOT}{os.pathsep}{self.folder}"}
        code = "from verifiers.cli.main import validate_main; validate_main()"
        command = [sys.executable, "-P", "-c", code, *arguments]
        return subprocess.run(command, capture_output=True, text=True, env=variables, cwd=self.folder, timeout=300)

    def checks(self, *arguments: str) -> dict[str, tuple[str, str]]:
        done = self.run("zz-env", "--json", *arguments)
        result = json.loads(done.stdout)
        assert done.returncode == (0 if result["ok"] else 1), done.stderr
        return {check["name"]: (check["status"], check["reason"]) for check in result["checks"]}

    def failed(self, *arguments: str) -> dict[str, str]:
        return {name: reason for name, (status, reason) in self.checks(*arguments).items() if status == "failed"}


@pytest.fixture
def env(tmp_path: Path) -> Validated:
    return Validated(tmp_path)


def test_an_honest_environment_passes_every_check_a_line_each(env):
    env.write(HONEST)
    done = env.run("zz-env")
    assert (done.returncode, done.stderr) == (0, "")
    *lines, last = done.stdout.splitlines()
    assert last == "zz-env: valid"
    assert len(lines) == 22
    assert all(line.startswith("ok  ") for line in lines)
    assert "answers written as \\boxed{}" in done.stdout


@pytest.mark.parametrize(
    ("old", "new", "check", "told"),
    [
        ("float(parser.parse_answer(completion) == answer)", "0.5", "reference", "0.5 of 1"),
        ("== answer", "in ('', answer)", "empty answer", "right 1, at most 0"),
        ("float(", "float('Solution' in str(completion) or ", "nothing said", "Solution"),
        ("parser.parse_answer(completion) == answer", "answer in str(completion)", "draft in thinking", "<think>"),
        ("parser.parse_answer(completion) == answer", "'{' + answer in str(completion)", "answer cut off", "{1002"),
        ("float(", "float(str(completion).count('Step') > 9 or ", "wrong answer padded", "Step 1"),
        ("parser.parse_answer(completion) == answer", "answer in str(completion)", "hedged answer", "1002 or 1004"),
        ("parser.parse_answer(completion) == answer", "answer in str(completion)", "options listed", "1004, 1006"),
        (
            "parser.parse_answer(completion) == answer",
            "(parser.parse_answer(completion) or '?') in answer",
            "part of an answer",
            "'10' is paid 1, as '1002' is",
        ),
        ("str(1000 + 2 * n)", "str(1000 + 2 * n) if n != 4 else ''", "answers", "train row 3: its answer is empty"),
        (
            "str(1000 + 2 * n)",
            "str(1000 + 2 * n if n != 4 else None)",
            "answers",
            "row 3: its answer is the text 'None'",
        ),
        (
            "float(parser.parse_answer(completion) == answer)",
            "0.01 * str(completion).count('boxed')",
            "wrong answer repeated",
            "0.5",
        ),
        (
            "float(parser.parse_answer(completion) == answer)",
            "float(parser.parse_answer(completion) == answer) * str(completion).count('boxed')",
            "right answer repeated",
            "50 for 50 copies, 1 for one",
        ),
        (
            "float(parser",
            "seen.append(1) or float(len(seen) < 50 and parser",
            "same reward",
            "1.0 before the other replies and 0.0 after",
        ),
        ("float(", "__import__('random').random() * float(", "same reward", "example 0"),
        ("float(", "2 * float(", "rewards", "got 2, outside 0 to 1"),
        ("float(", "1 / 0 * float(", "rewards", "ZeroDivisionError"),
        ("float(", "float('nan') * float(", "rewards", "nan"),
        ("What is {n} + {n}?", "Is it {1000 + 2 * n}?", "answer hidden", "6 of 6 answers"),
        ('"answer": str(', '"info": {"o": object()}, "answer": str(', "rows", "object"),
        ('"question": f"What is {n} + {n}?"', '"prompt": []', "rows", "no prompt"),
        ("str(1000 + 2 * n)", "str(hash('a') % 9999 + 2 * n)", "same rows", "different train rows"),
    ],
)
def test_each_fault_fails_its_own_check_with_a_reason(env, old, new, check, told):
    assert old in HONEST
    env.write(HONEST.replace(old, new))
    assert told in env.failed()[check]


@pytest.mark.parametrize(
    ("paid", "told"),
    [
        ("parser.parse_answer(completion) == answer != '1010'", "example 4 got 0 of 1"),
        ("answer == '1010' or parser.parse_answer(completion) == answer", "example 4: right 1, at most 0"),
    ],
)
def test_a_row_that_is_graded_otherwise_is_found_among_those_not_played(env, paid, told):
    env.write(HONEST.replace("parser.parse_answer(completion) == answer", paid))
    failed = env.failed("-n", "2")
    assert told in failed.pop("other rows")
    assert failed == {}


def test_a_rubric_that_pays_nothing_is_told(env):
    env.write(HONEST.replace("funcs=[right]", "funcs=[right], weights=[0.0]"))
    assert "positive weight" in env.failed()["reference"]


def test_an_echo_that_is_paid_is_found(env):
    env.write(HONEST.replace("parser.parse_answer(completion) == answer", "'What is' in str(completion)"))
    assert "What is 1 + 1?" in env.failed()["prompt echoed"]


def test_an_environment_that_does_not_load_fails_with_its_own_line(env):
    env.write(HONEST.replace("parser = vf.Parser", 'raise RuntimeError("no"); parser = vf.Parser'))
    done = env.run("zz-env")
    assert done.returncode == 1
    assert "RuntimeError: no" in done.stdout
    assert "zz_env.py" in done.stdout


def test_a_missing_environment_is_set_up_not_failure(env):
    done = env.run("zz-nothing")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (3, "", 1)


@pytest.mark.parametrize(
    ("declared", "told"),
    [
        ({"flor": 0.1}, "Did you mean 'floor'?"),
        ({"floor": "much"}, "floor"),
        ({"reference": "zz_env:nobody"}, "nobody"),
        ({"reward_range": [1, 0]}, "the lower end comes first"),
        ({"answer_in_context": " "}, "the reason"),
    ],
)
def test_a_declaration_that_errs_is_refused_by_name(env, declared, told):
    env.write(HONEST, **declared)
    done = env.run("zz-env")
    assert (done.returncode, len(done.stderr.splitlines())) == (3, 1), done.stdout
    assert told in done.stderr


def test_what_is_declared_is_meant_to_be_so(env):
    source = HONEST.replace("float(", "0.1 + 2 * float(").replace("What is {n} + {n}?", "Is it {1000 + 2 * n}?")
    env.write(source)
    assert {"answer hidden", "empty answer", "wrong answer", "rewards"} <= env.failed().keys()
    env.write(source, floor=0.1, reward_range=[0, 2.1], answer_in_context="it is asked about", reference_reward=2.1)
    assert env.failed() == {}


def test_a_declared_floor_holds_for_the_whole_reward(env):
    source = HONEST.replace("funcs=[right]", "funcs=[right, lambda completion: 1.0], weights=[1.0, 0.2]")
    env.write(source)
    assert env.failed() == {}  # what a wrong answer gets for form is its author's matter
    env.write(source, floor=0.1)
    assert "reward 0.2, at most 0.1" in env.failed()["empty answer"]


TOOLS = """
import verifiers as vf

def secret() -> str:
    return "4711"

def looked(completion):
    return float("4711" in str(completion[-1].content))

async def policy(messages, row):
    if messages[-1]["role"] == "tool":
        return messages[-1]["content"]
    return {"content": None, "tool_calls": [{"id": "1", "function": {"name": "secret", "arguments": "{}"}}]}

def load_environment():
    return vf.ToolEnv(tools=[secret], dataset=[{"question": "Which?"}], rubric=vf.Rubric(funcs=[looked]))
"""


def test_a_reference_policy_plays_whole_rollouts_with_tools(env):
    env.write(TOOLS)
    assert env.checks()["reference"][0] == "not applicable"
    env.write(TOOLS, reference="zz_env:policy")
    checks = env.checks()
    assert checks["reference"] == ("ok", "at least 1 on 1 examples, by zz_env:policy")
    assert "hedged answer" not in checks
    env.write(TOOLS, reference="zz_env:policy", reference_reward=1.5)
    assert "1 of 1.5" in env.failed()["reference"]


def test_an_answer_that_a_tool_gives_away_is_found(env):
    source = TOOLS.replace('{"question": "Which?"}', '{"question": "Which?", "answer": "4711"}')
    env.write(source)
    assert "a tool returns '4711'" in env.failed()["answer in tools"]
    env.write(source, answer_in_context="the tool is what is asked for")
    assert env.checks()["answer in tools"][0] == "ok"
    env.write(source.replace('"4711"\n', '"ask again"\n'))
    assert env.checks()["answer in tools"] == ("ok", "not in what secret return")


def test_an_environment_that_never_ends_is_broken_off(env):
    endless = HONEST.replace("vf.SingleTurnEnv(", "Endless(") + (
        "\nclass Endless(vf.MultiTurnEnv):\n    async def env_response(self, messages, state, **kwargs):\n"
        "        return [{'role': 'user', 'content': 'go on'}]\n"
    )
    env.write(endless)
    assert "did not end within 200 replies" in env.failed("-n", "1")["reference"]


def test_network_is_refused_unless_declared(env):
    asking = HONEST.replace(
        "    parser = vf",
        "    import socket\n    try:\n        socket.create_connection(('192.0.2.1', 9), timeout=0.1)\n"
        "    except OSError as error:\n        print(type(error).__name__)\n    parser = vf",
        1,
    )
    env.write(asking)
    assert "192.0.2.1" in env.failed()["network"]
    assert "RefusedHere" in env.run("zz-env").stderr
    env.write(asking, network=True)
    assert env.checks()["network"] == ("ok", "declared; asked for 192.0.2.1")


def test_refusal_reaches_other_threads_and_names_and_spares_this_machine():
    server = socket.create_server(("127.0.0.1", 0))
    told = []

    def ask() -> None:
        try:
            socket.getaddrinfo("example.invalid", 80)
        except RefusedHere as error:
            told.append(str(error))

    with watched(refuse=True) as watch, server:
        socket.create_connection(server.getsockname()).close()
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
    assert list(watch.hosts) == ["example.invalid"]
    assert len(told) == 1
    assert is_near("::1") and is_near("localhost") and not is_near("10.0.0.1")


def test_an_answer_stands_in_a_text_only_as_words_of_its_own():
    assert stands_in("Paris", "the  city of PARIS.")
    assert not stands_in("123", "1234") and not stands_in("123", "-123") and not stands_in("123", "123.5")
    assert not stands_in("12", "12")  # two characters are there by chance


def test_cheats_are_made_of_the_right_answer_and_others():
    rows = [{"answer": "7"}, {"answer": "8"}]
    assert other_answer(rows[0], rows) == "8"
    assert other_answer({"answer": "7"}, []) == "8"
    assert hedges(rows[0], rows, lambda text: text) == ["7 or 8", "8 or 7", "7, 8"]
    assert listings(rows[0], rows, lambda text: text)[0] == "8, 7"
    assert next(iter(forms_of(XMLParser(["think", "guess"], answer_field="guess")).values()))("x").endswith(
        "<guess>\nx\n</guess>"
    )
    forms = forms_of(Parser())
    assert drafts(rows[0], rows, forms["\\boxed{}"])[0] == "<think>\n\\boxed{7}\n</think>\n\\boxed{8}"
    assert drafts(rows[0], rows, forms["#### after </think>"])[0] == "<think>\n#### 7\n</think>\n#### 8"
    assert cut_off(rows[0], forms["<answer>"]) == ["<answer>7", "<answer>7</answer"]
    assert cut_off(rows[0], forms["plain"]) == []
    assert decoys({"answer": "7"}, rows) == ["8", "8"] and decoys(rows[0], [*rows, {"answer": "9"}]) == ["8", "9"]
    assert [part_of({"answer": text}) for text in ("1002", "Paris", "7.50", "1000", "0000", "yes")] == [
        "10", "Pa", "", "10", "", ""
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["gsm8k", "math-env", "reverse-letters", "reverse-text", "tool-math", "wordle"])
def test_the_environments_here_are_valid(name, tmp_path):
    folder = ROOT / "environments" / name.replace("-", "_")
    variables = outside_variables() | {"PYTHONPATH": f"{ROOT}{os.pathsep}{folder}", "HF_HUB_OFFLINE": "1"}
    code = "from verifiers.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, "validate", name, "-n", "5"],
        capture_output=True, text=True, cwd=tmp_path, timeout=300, env=variables | {"HF_HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == f"{name}: valid"


@pytest.mark.parametrize("template", ["single-turn", "multi-turn", "tools", "judge"])
def test_a_new_environment_is_valid(template, env):
    from verifiers.cli.init import create

    env.folder = create("zz-env", template, path=env.folder)
    done = env.run("zz-env", "-n", "5")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ok              reference" in done.stdout
