"""From a wheel in a new virtual environment: every environment here and every template is installed and evaluated."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uv
from loopback import ROOT, Loopback, outside_variables

from verifiers.records import read_records

pytestmark = pytest.mark.slow

ENVIRONMENTS = ("gsm8k", "math-env", "reverse-letters", "reverse-text", "tool-math", "wordle")
TEMPLATES = ("single-turn", "multi-turn", "tools", "judge")
WORDS = (ROOT / "environments" / "wordle" / "wordle" / "words.txt").read_text().split()


class Newcomer:
    """A virtual environment with the wheel in it, a folder with ./environments, and another one with nothing."""

    def __init__(self, folder: Path) -> None:
        self.work, self.elsewhere, self.programs = folder / "work", folder / "elsewhere", folder / "venv" / "bin"
        self.known: dict[str, list[dict[str, Any]]] = {}
        self.work.mkdir()
        self.elsewhere.mkdir()
        self.variables = outside_variables() | {"HF_HOME": str(folder / "hf"), "HF_HUB_OFFLINE": "1"}
        self.variables.pop("VIRTUAL_ENV", None)
        self.uv("build", "--wheel", "-q", "-o", str(folder), str(ROOT))
        self.uv("venv", "-q", "-p", sys.executable, str(folder / "venv"))
        (self.site,) = (folder / "venv" / "lib").glob("*/site-packages")
        (wheel,) = folder.glob("*.whl")
        self.uv("pip", "install", "-q", "-p", str(self.programs / "python"), str(wheel), "pytest", "pytest-asyncio")
        for name in ENVIRONMENTS:  # without what earlier runs of anything left beside them
            module = name.replace("-", "_")
            ignored = shutil.ignore_patterns("__pycache__", "outputs", "*.egg-info")
            shutil.copytree(ROOT / "environments" / module, self.work / "environments" / module, ignore=ignored)

    def uv(self, *arguments: str) -> None:
        done = subprocess.run([uv.find_uv_bin(), *arguments], env=self.variables, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    def __call__(self, program: str, *arguments: str, at: Path | None = None, code: int = 0) -> str:
        """Standard output; the exit code is checked."""
        command = [str(self.programs / program), *arguments]
        done = subprocess.run(
            command, cwd=at or self.work, env=self.variables, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout

    def rows(self, env_id: str, n: int) -> list[dict[str, Any]]:
        """The first rows of an installed environment; asked for once."""
        if env_id in self.known:
            return self.known[env_id]
        code = (
            "import json, sys, verifiers as vf; "
            f"print(json.dumps(vf.load_environment({env_id!r}).eval_rows({n}), default=str))"
        )
        self.known[env_id] = json.loads(self("python", "-c", code, at=self.elsewhere).splitlines()[-1])
        return self.known[env_id]


@pytest.fixture(scope="module")
def vf(tmp_path_factory: pytest.TempPathFactory) -> Newcomer:
    return Newcomer(tmp_path_factory.mktemp("newcomer"))


def question_of(body: dict[str, Any]) -> str:
    return next(m["content"] for m in reversed(body["messages"]) if m["role"] == "user")


def written(form: Callable[[str], str], rows: list[dict[str, Any]]) -> Callable[[dict[str, Any]], str]:
    """A model that knows every second row."""
    known = {row["prompt"][-1]["content"]: row["answer"] for row in rows[::2]}
    return lambda body: form(known.get(question_of(body), "no idea"))


def boxed(rows: list[dict[str, Any]]) -> Callable[[dict[str, Any]], str]:
    return written(lambda answer: rf"So it is \boxed{{{answer}}}.", rows)


def reversing(rows: list[dict[str, Any]]) -> Callable[[dict[str, Any]], str]:
    return written(lambda answer: f"<reversed_text>{answer}</reversed_text>", rows)


def plainly(rows: list[dict[str, Any]]) -> Callable[[dict[str, Any]], str]:
    return written(lambda answer: answer, rows)


def calling(rows: list[dict[str, Any]]) -> Callable[[dict[str, Any]], Any]:
    """Tries a tool first."""
    answer = boxed(rows)

    def reply(body: dict[str, Any]) -> Any:
        if body["messages"][-1]["role"] == "tool":
            assert body["messages"][-1]["content"] == "42"
            return answer(body)
        function = {"name": "multiply", "arguments": json.dumps({"a": "6", "b": "7"})}
        assert "multiply" in [tool["function"]["name"] for tool in body["tools"]]
        call = {"id": "call-1", "type": "function", "function": function}
        return {"role": "assistant", "content": None, "tool_calls": [call]}

    return reply


def marks(guess: str, word: str) -> str:
    left = [w for g, w in zip(guess, word, strict=True) if g != w]
    shown = []
    for g, w in zip(guess, word, strict=True):
        if g == w:
            shown.append("G")
        elif g in left:
            left.remove(g)
            shown.append("Y")
        else:
            shown.append("X")
    return "".join(shown)


def playing(rows: list[dict[str, Any]]) -> Callable[[dict[str, Any]], str]:
    """Guesses the first word that fits all marks so far."""

    def reply(body: dict[str, Any]) -> str:
        text = "\n".join(m["content"] for m in body["messages"] if m["role"] == "user")
        seen = [
            (guess.replace(" ", "").lower(), given.replace(" ", ""))
            for guess, given in re.findall(r"^([A-Z](?: [A-Z]){4})\n([GYX](?: [GYX]){4})$", text, re.MULTILINE)
        ]
        fitting = (word for word in WORDS if all(marks(guess, word) == given for guess, given in seen))
        return f"<guess>{next(fitting)}</guess>"

    return reply


MODELS = {
    "gsm8k": boxed, "math-env": boxed, "reverse-letters": plainly, "reverse-text": reversing, "tool-math": calling,
    "wordle": playing,
}  # fmt: skip


def check_run(out: str, env_id: str, n: int, *, at: Path) -> dict[str, Any]:
    """The metadata that was printed, after a look at what was saved."""
    told = json.loads(out)
    assert (told["env_id"], told["status"], told["n_scored"], told["n_total"]) == (env_id, "done", n, n)
    assert told["env"]["version"] == "0.1.0" and told["env"]["wheel_sha256"]
    (folder,) = (at / "outputs" / "evals" / f"{env_id}--m").iterdir()
    assert json.loads((folder / "metadata.json").read_text()) == told
    records = list(read_records(folder / "results.jsonl"))
    assert len({record.key for record in records}) == len(records) == n
    for record in records:
        assert record.status == "scored" and record.scores and record.turns
        assert record.errors == [] and record.usage.prompt == 10 * len(record.turns)
        assert record.library_version == "1.0.0"
    assert told["avg_reward"] == pytest.approx(sum(record.reward or 0.0 for record in records) / n)
    shutil.rmtree(at / "outputs")
    return told


@pytest.mark.parametrize("env_id", ENVIRONMENTS)
def test_an_environment_is_installed_by_name_evaluated_from_elsewhere_and_removed(vf, env_id, tmp_path):
    out = vf("vf-install", env_id)
    assert f"installed {env_id} 0.1.0 from" in out and f"Next: vf-eval {env_id}" in out
    assert "not installed" not in listed(vf, env_id)
    check_scores(vf, env_id, tmp_path)
    assert f"removed {env_id} 0.1.0" in vf("vf", "uninstall", env_id)
    assert "not installed" in listed(vf, env_id)


@pytest.mark.parametrize("env_id", ENVIRONMENTS)
def test_the_wheel_of_an_environment_has_all_its_files(vf, env_id, tmp_path):
    folder = vf.work / "environments" / env_id.replace("-", "_")
    vf.uv("build", "--wheel", "-q", "-o", str(tmp_path / "dist"), str(folder))
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    vf("vf-install", str(wheel), at=tmp_path)
    asked = tomllib.loads((folder / "pyproject.toml").read_text())["tool"]["verifiers"]["eval"]
    (vf.site / "pyproject.toml").write_text("")  # that of the environment installed last, whichever it is
    code = f"from verifiers.loading import eval_defaults; print(eval_defaults({env_id!r}).num_examples)"
    assert vf("python", "-c", code, at=tmp_path).strip() == str(asked["num_examples"])
    check_scores(vf, env_id, tmp_path)
    vf("vf", "uninstall", env_id, at=tmp_path)


def listed(vf: Newcomer, env_id: str) -> str:
    return next(line for line in vf("vf", "list").splitlines() if line.split()[0] == env_id)


def check_scores(vf: Newcomer, env_id: str, at: Path) -> None:
    n, tries = 4, 2
    with Loopback(MODELS[env_id](vf.rows(env_id, n))) as server:
        command = [env_id, "-m", "m", "-b", server.url, "-n", str(n), "-r", str(tries), "--json"]
        told = check_run(vf("vf-eval", *command, at=at), env_id, n * tries, at=at)
    if env_id == "wordle":
        assert told["avg_metrics"]["solved"] > 0.5
    elif env_id == "reverse-text":
        assert told["avg_metrics"]["exact"] == 0.5
    else:
        assert told["avg_reward"] == 0.5
    if env_id == "tool-math":
        assert told["avg_metrics"]["num_turns"] == 2.0


@pytest.fixture
def begun(vf: Newcomer, template: str) -> Iterator[str]:
    """A new environment of the template's; removed after the test."""
    env_id = f"my-{template}"
    out = vf("vf-init", env_id, "-t", template)
    assert out.splitlines()[1:] == [f"  vf-install {env_id}", f"  vf-eval {env_id}"]
    yield env_id
    vf("vf", "uninstall", env_id)


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_new_environment_passes_its_test_and_is_evaluated_as_it_is(vf, template, begun, tmp_path):
    vf("vf-install", begun)
    folder = vf.work / "environments" / begun.replace("-", "_")
    assert "passed" in vf("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", at=folder)
    answer = "yes" if template == "judge" else "I cannot say."
    with Loopback(lambda body: answer) as server:
        command = [begun, "-m", "m", "-b", server.url, "-n", "3", "-r", "1", "--json"]
        told = check_run(vf("vf-eval", *command, at=tmp_path), begun, 3, at=tmp_path)
    if template == "judge":
        assert told["avg_metrics"]["explains_it"] == 1.0
