"""`vf play`: somebody types, at a real terminal or through a pipe, and is scored and saved like a model."""

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from loopback import ROOT, outside_variables, wait_until

from verifiers.errors import ConfigError
from verifiers.eval.person import tool_calls
from verifiers.results import load_results
from verifiers.types import Tool

GAME = """
import verifiers as vf

class Game(vf.MultiTurnEnv):
    @vf.stop
    async def was_found(self, state):
        return bool(state["trajectory"]) and found(state["trajectory"][-1]["completion"], state["answer"]) == 1.0

    async def env_response(self, messages, state, **kwargs):
        print("printed by the author")
        return [{"role": "user", "content": f"It is not {messages[-1]['content']!r}."}]

def found(completion, answer):
    return float(completion[-1]["content"] == answer)

def load_environment():
    rows = [{"question": f"Guess {n}", "answer": str(n)} for n in range(3)]
    return Game(eval_dataset=rows, rubric=vf.Rubric(funcs=[found]), max_turns=4)
"""

TOOLS = """
import verifiers as vf

def add(a: int, b: int) -> int:
    return a + b

def right(completion, answer):
    return float(completion[-1]["content"] == answer)

def load_environment():
    rows = [{"question": "2 + 2?", "answer": "4"}]
    return vf.ToolEnv(tools=[add], eval_dataset=rows, rubric=vf.Rubric(funcs=[right]))
"""


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-P", "-c", "from verifiers.cli.main import main; main()", "play", *arguments]


def variables(folder: Path) -> dict[str, str]:
    return outside_variables() | {"PYTHONPATH": f"{ROOT}{os.pathsep}{folder}", "TERM": "xterm"}


def play(folder: Path, typed: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command(*arguments), input=typed, capture_output=True, text=True, cwd=folder, env=variables(folder), timeout=200
    )
    assert "Traceback" not in done.stderr
    return done


def saved(folder: Path) -> Path:
    (run,) = folder.glob("outputs/evals/*--human/*")
    return run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "zz_game.py").write_text(GAME)
    (tmp_path / "zz_tools.py").write_text(TOOLS)
    return tmp_path


def test_a_person_sees_the_messages_is_scored_and_saved_like_a_model(folder):
    done = play(folder, "7\n\n0\n\n", "zz-game")
    assert done.returncode == 0, done.stderr
    assert done.stdout.index("Guess 0") < done.stdout.index("It is not '7'.") < done.stdout.index("reward 1")
    assert "found" in done.stdout and "was_found" in done.stdout
    assert "printed by the author" not in done.stdout
    (record,) = load_results(saved(folder))
    assert (record.model.name, record.reward, record.status) == ("human", 1.0, "scored")
    assert [message["content"] for message in record.messages] == ["7", "It is not '7'.", "0"]
    metadata = json.loads((saved(folder) / "metadata.json").read_text())
    assert (metadata["status"], metadata["model"], metadata["reward"]["mean"]) == ("done", "human", 1.0)


def test_a_reply_of_several_lines_ends_at_an_empty_line_or_a_dot(folder):
    play(folder, "\n\none\ntwo\n\n.\na\n.\n0\n\n", "zz-game")
    (record,) = load_results(saved(folder))
    assert [m["content"] for m in record.messages if m["role"] == "assistant"] == ["one\ntwo", "", "a", "0"]


def test_one_example_can_be_chosen_and_one_that_is_not_there_is_refused(folder):
    assert "Guess 2" in play(folder, "2\n\n", "zz-game", "--example", "2").stdout
    done = play(folder, "", "zz-game", "--example", "9")
    assert (done.returncode, done.stdout) == (3, "")
    assert "the evaluation rows are 0 to 2" in done.stderr


def test_the_end_of_input_leaves_and_keeps_what_was_finished(folder):
    done = play(folder, "0\n\n5\n\n", "zz-game", "-n", "3")
    assert done.returncode == 130
    assert "left after 1 of 3 examples" in done.stderr
    assert [record.example_id for record in load_results(saved(folder))] == [0]
    assert json.loads((saved(folder) / "metadata.json").read_text())["status"] == "interrupted"


def test_tools_are_called_as_python_or_json_and_a_slip_is_asked_again(folder):
    typed = 'add(1, b=\n\nadd(2, b=2)\n\n[{"name": "add", "arguments": {"a": 1, "b": 1}}]\n\n4\n\n'
    done = play(folder, typed, "zz-tools")
    assert done.returncode == 0, done.stderr
    assert "is no call that can be read" in done.stdout
    (record,) = load_results(saved(folder))
    assert [m["content"] for m in record.messages if m["role"] == "tool"] == ["4", "2"]
    assert (record.reward, record.metrics["add_calls"]) == (1.0, 2.0)


def at_terminal(folder: Path, *arguments: str) -> tuple[subprocess.Popen[bytes], int]:
    here, there = pty.openpty()
    process = subprocess.Popen(
        command(*arguments), stdin=there, stdout=there, stderr=there, cwd=folder, env=variables(folder),
        start_new_session=True,
    )  # fmt: skip
    os.close(there)
    return process, here


def read_until(terminal: int, text: str) -> str:
    seen = ""

    def came() -> bool:
        nonlocal seen
        seen += os.read(terminal, 4096).decode(errors="replace")
        return text in seen

    wait_until(came, text)
    return seen


def test_at_a_terminal_roles_are_coloured_and_it_can_be_played(folder):
    process, terminal = at_terminal(folder, "zz-game")
    assert "\x1b[36m── user" in read_until(terminal, "\n> ")
    os.write(terminal, b"0\n\n")
    assert "reward 1" in read_until(terminal, "saved in")
    assert process.wait(30) == 0
    os.close(terminal)


def test_ctrl_c_while_typing_leaves_at_once(folder):
    process, terminal = at_terminal(folder, "zz-game")
    read_until(terminal, "\n> ")
    process.send_signal(signal.SIGINT)
    seen = read_until(terminal, "interrupted")
    assert process.wait(30) == 130
    assert "Traceback" not in seen
    assert load_results(saved(folder)) == []
    os.close(terminal)


ADD = Tool("add", parameters={"properties": {"a": {}, "b": {}}})


@pytest.mark.parametrize("text", ["4", "the sum add(1, 2) is 3", "", '{"answer": 4}', "sub(1)"])
def test_an_answer_in_words_is_no_call(text):
    assert tool_calls(text, [ADD]) == []
    assert tool_calls("add(1, 2)", []) == []


@pytest.mark.parametrize("text", ["add(1, 2, 3)", "add(1", "add(a=b)", "add(1) + 2", "add(a={1})"])
def test_a_call_that_cannot_be_read_is_told(text):
    with pytest.raises(ConfigError, match="no call that can be read"):
        tool_calls(text, [ADD])


def test_calls_one_a_line_have_ids_of_their_own():
    calls = tool_calls('add(1, 2)\n{"name": "add", "arguments": {"a": 3}}', [ADD])
    assert [call.arguments for call in calls] == ['{"a": 1, "b": 2}', '{"a": 3}']
    assert len({call["id"] for call in calls}) == 2
