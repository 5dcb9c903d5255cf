"""The documentation keeps its promises: its examples run, its tables are complete, its links lead somewhere."""

import ast
import asyncio
import importlib.util
import inspect
import json
import re
import shlex
import socket
import tomllib
from dataclasses import fields
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest
import typer
from jsonschema import Draft202012Validator

import verifiers as vf
from hub_server.cli import app as hub_app
from verifiers import errors, records, run_metadata
from verifiers.cli.main import COMMANDS, app, load_command
from verifiers.decorators import marked
from verifiers.eval.config import configs_of
from verifiers.eval.endpoints import PROVIDERS, read_endpoints
from verifiers.eval.summary import summarise_run
from verifiers.installed import EvalDefaults
from verifiers.recording import FRAMEWORK_KEYS

REPOSITORY = Path(__file__).parents[1]
DOCS = REPOSITORY / "docs"
PAGES = sorted(DOCS.glob("*.md"))
READMES = [REPOSITORY / "README.md", *sorted(REPOSITORY.glob("environments/*/README.md"))]
MAX_NO_RUN = 2

_FENCE = re.compile(r"^(`{3,})([^\n`]*)\n(.*?)^\1[ ]*$", re.M | re.S)
_SHOWN = re.compile(r"#\s*→\s*(.+?)\s*$")


def blocks(page: Path) -> list[tuple[str, str, int]]:
    """(info string, text, line of the text) of each fenced block."""
    whole = page.read_text("utf-8")
    return [(m[2].strip(), m[3], whole.count("\n", 0, m.start(3)) + 1) for m in _FENCE.finditer(whole)]


def blocks_of(page: Path, language: str) -> list[tuple[str, int]]:
    return [(text, line) for info, text, line in blocks(page) if info == language]


def named_in(text: str) -> set[str]:
    """Every word that stands in code: in a fenced block or between backticks."""
    code = [m[3] for m in _FENCE.finditer(text)] + re.findall(r"`([^`\n]+)`", _FENCE.sub("", text))
    return set(re.findall(r"[\w]+", "\n".join(code)))


def section(page: str, heading: str = "") -> str:
    """The text under a heading of the second level; without one, what comes before the first."""
    parts = re.split(r"^## (.+)$", (DOCS / page).read_text("utf-8"), flags=re.M)
    return dict(zip(["", *parts[1::2]], parts[::2], strict=True))[heading]


def first_cells(text: str) -> set[str]:
    """What stands in code in the first column of the tables."""
    return {name for row in re.findall(r"^\|([^|]*)\|", text, re.M) for name in re.findall(r"`([^`]+)`", row)}


# Python examples


@pytest.mark.parametrize(
    "page", [p for p in [*PAGES, REPOSITORY / "README.md"] if blocks_of(p, "python")], ids=lambda page: page.stem
)
def test_python_examples_run_and_show_what_they_say(page, tmp_path, monkeypatch):
    monkeypatch.setattr(socket.socket, "connect", no_network)
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    module = ModuleType("documentation")
    for text, line in blocks_of(page, "python"):
        run_example(text, vars(module), f"{page.name}", line)


def no_network(_: socket.socket, address: Any) -> None:
    pytest.fail(f"an example connects to {address}: it needs a ScriptedClient")


def run_example(text: str, namespace: dict[str, Any], name: str, first_line: int) -> None:
    """Runs a block statement by statement; an expression with `# → value` must have that value."""
    tree = ast.parse("\n" * (first_line - 1) + text, name)
    lines = text.splitlines()
    for statement in tree.body:
        shown = _SHOWN.search(lines[(statement.end_lineno or 0) - first_line])
        if not isinstance(statement, ast.Expr):
            assert shown is None, f"{name}:{statement.lineno}: only an expression can show a value"
            exec(compile(ast.Module([statement], []), name, "exec"), namespace)
            continue
        value = eval(compile(ast.Expression(statement.value), name, "eval"), namespace)
        if shown is not None:
            assert repr(value) == shown[1], f"{name}:{statement.lineno}"


def test_a_wrong_value_in_an_example_is_noticed():
    with pytest.raises(AssertionError, match=r"page\.md:7"):
        run_example("1 + 1  # → 3", {}, "page.md", 7)


def test_few_examples_are_not_run_and_each_says_why():
    skipped = [info for page in [*PAGES, *READMES] for info, _, _ in blocks(page) if info.startswith("python no-run")]
    assert len(skipped) <= MAX_NO_RUN
    assert all(re.fullmatch(r"python no-run \(.+\)", info) for info in skipped)
    others = {info for page in PAGES for info, _, _ in blocks(page) if not info.startswith("python no-run")}
    assert others <= {"python", "sh", "toml", ""}, "a misspelt language would not be checked"


# TOML examples


def saved_toml(page: str, folder: Path) -> Path:
    """The page's one TOML block as a file."""
    ((text, _),) = blocks_of(DOCS / page, "toml")
    file = folder / "example.toml"
    file.write_text(text, "utf-8")
    return file


def test_the_endpoints_file_of_clients_is_read_with_its_replicas(tmp_path):
    (choice,) = read_endpoints(saved_toml("clients.md", tmp_path)).values()
    assert len(choice.replicas) == 2
    assert choice.prices == (0.10, 0.40)


def test_the_evaluations_file_of_suites_is_read_with_its_sweep(tmp_path):
    configs = configs_of(str(saved_toml("suites.md", tmp_path)), {})
    assert [config.env_id for config in configs] == ["gsm8k", "math-env", *["math-env"] * 4]
    assert all(config.model == "gpt-4.1-mini" for config in configs)


def test_the_pyproject_of_packages_has_what_vf_eval_reads(tmp_path):
    project = tomllib.loads(saved_toml("packages.md", tmp_path).read_text("utf-8"))
    assert project["tool"]["verifiers"]["eval"].keys() == {field.name for field in fields(EvalDefaults)}


# Flags


def flags_of(command: Any) -> set[str]:
    context = typer.Context(command, **command.context_settings)
    own = {name for parameter in command.get_params(context) for name in parameter.opts if name.startswith("-")}
    parts = getattr(command, "commands", {}).values()  # of one with commands of its own, such as `vf sandbox run`
    return own.union(*(flags_of(part) for part in parts))


@cache
def all_flags() -> dict[str, set[str]]:
    found = {name: flags_of(load_command(name)) for name in COMMANDS}
    found["vf-hub"] = flags_of(typer.main.get_command(hub_app))  # of the server; `vf hub` is its client
    return {**found, "": flags_of(typer.main.get_command(app))}


def test_every_flag_is_in_the_pages_of_its_command():
    pages = {
        "eval": "evaluating.md", "validate": "validating.md", "play": "validating.md", "debug": "validating.md",
        "audit": "judging.md", "sandbox": "sandboxes.md", "view": "viewer.md", "train": "training.md",
        "compare": "statistics.md", "profile": "viewer.md", "export": "records.md",
        **dict.fromkeys(("login", "logout", "whoami", "publish", "pull", "push-results", "hub"), "hub-client.md"),
        "vf-hub": "hub.md hub-hosting.md hub-accounts.md hub-results.md",
    }  # fmt: skip
    for command, flags in all_flags().items():
        text = "\n".join((DOCS / page).read_text("utf-8") for page in pages.get(command, "packages.md").split())
        mentioned = {word for span in re.findall(r"`([^`\n]+)`", text) for word in re.split(r"[\s,]+", span)}
        assert flags - mentioned == set(), f"vf {command}"


def test_every_flag_that_evaluating_lists_exists():
    cells = first_cells((DOCS / "evaluating.md").read_text("utf-8"))
    listed = {name for name in cells if name.startswith("-")}
    assert len(listed) > 40
    assert listed <= all_flags()["eval"]


def commands_in(page: Path) -> list[list[str]]:
    """The words of each vf command in the page's shell blocks."""
    found = []
    for text, _ in blocks_of(page, "sh"):
        for line in re.split(r"\n|&&", text):
            words = [word for word in shlex.split(line, comments=True) if not re.fullmatch(r"[A-Z_]+=.*", word)]
            if words and re.fullmatch(r"vf(-\w+)?", Path(words[0]).name):
                found.append(words)
    return found


@pytest.mark.parametrize("page", [*PAGES, *READMES], ids=lambda page: f"{page.parent.name}-{page.stem}")
def test_commands_in_shell_examples_have_the_flags_they_are_given(page):
    for words in commands_in(page):
        program = Path(words[0]).name
        command = program[3:] if program.startswith("vf-") else words[1]
        command = program if program == "vf-hub" else command
        assert command in all_flags(), words
        given = {word.split("=")[0] for word in words[1:] if re.fullmatch(r"-{1,2}[A-Za-z][\w-]*(=.*)?", word)}
        assert given <= all_flags()[command], words


def test_shell_examples_are_found():
    assert sum(len(commands_in(page)) for page in PAGES) >= 10


# Names


def test_every_public_name_is_in_the_pages():
    named = named_in("\n".join(page.read_text("utf-8") for page in PAGES))
    assert set(vf.__all__) - {"__version__"} - named == set()


def test_every_name_that_the_pages_take_from_the_library_exists():
    for page in PAGES:
        for name in re.findall(r"\bvf\.([A-Za-z_]\w*)", page.read_text("utf-8")):
            assert name in vf.__all__, f"{page.name}: vf.{name}"


def test_every_error_has_a_row_in_errors():
    classes = {
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, Exception) and value.__module__ == "verifiers.errors"
    }
    assert len(classes) > 20
    assert classes - first_cells((DOCS / "errors.md").read_text("utf-8")) == {"Undecided"}
    assert "## Undecided" in (DOCS / "errors.md").read_text("utf-8")


def test_the_side_of_each_error_is_the_one_in_its_row():
    page = (DOCS / "errors.md").read_text("utf-8")
    rows = re.findall(r"^\| ((?:`\w+`[^|]*)+) \| (\w+) \|", page.partition("## Of the set-up")[0], re.M)
    checked = 0
    for names, side in rows:
        for name in re.findall(r"`(\w+)`", names):
            error = getattr(errors, name, None)  # `TimeoutError` and the like are no errors of ours
            if error is not None:
                assert error.side == side, name
                checked += 1
    assert checked > 15


def test_every_framework_key_is_in_the_table_of_state():
    documented = first_cells(section("state.md"))
    in_docstring = re.findall(r"^\s*\| ([a-z_, ]+) \|", vf.State.__doc__ or "", re.M)
    keys = {key.strip() for row in in_docstring for key in row.split(",")} - {"key"}
    assert len(keys) > 15
    assert keys - documented == set()
    assert FRAMEWORK_KEYS - documented == set()


def test_every_stop_condition_is_in_environments():
    conditions = {method.__name__ for method in marked(vf.ToolEnv(dataset=[{"question": "?"}]), "stop")}
    assert len(conditions) > 5
    assert conditions - first_cells(section("environments.md", "The loop")) == set()


def test_every_provider_is_in_clients_with_its_address_and_key():
    page = (DOCS / "clients.md").read_text("utf-8")
    for name, provider in PROVIDERS.items():
        (row,) = [line for line in page.splitlines() if line.startswith(f"| `{name}` |")]
        assert provider.url in row and provider.key_var in row
        assert provider.default_model is None or f"`{provider.default_model}`" in row


def fields_of(struct: type) -> set[str]:
    return {field.encode_name for field in msgspec.structs.fields(struct)}


def test_every_field_of_a_record_is_in_records():
    cells = first_cells(section("records.md", "Fields"))
    assert fields_of(records.RolloutRecord) - cells == set()
    named = named_in((DOCS / "records.md").read_text("utf-8"))
    parts = [
        records.EnvInfo, records.DataInfo, records.ModelInfo, records.Score, records.JudgeInfo, records.Failure,
        records.Turn, records.Timing, records.TokenUsage,
    ]  # fmt: skip
    assert set().union(*map(fields_of, parts)) - named == set()


def test_every_field_of_the_metadata_is_in_records():
    cells = first_cells(section("records.md", "metadata.json"))
    assert fields_of(run_metadata.SavedRun) - cells == set()
    assert summarise_run([], total=1, time_s=0.0).keys() - cells == set()


# The record's schema


def test_the_schema_file_is_the_one_that_the_library_generates():
    spec = importlib.util.spec_from_file_location("schema_script", REPOSITORY / "scripts" / "schema.py")
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.TARGET.read_text("utf-8") == script.rendered(), "run: python scripts/schema.py"


def test_a_line_of_results_fits_the_schema_file():
    schema = json.loads((DOCS / "record.schema.json").read_text("utf-8"))
    Draft202012Validator.check_schema(schema)
    env = vf.SingleTurnEnv(dataset=[{"question": "2 + 2?", "answer": "4"}])
    results = asyncio.run(env.evaluate(vf.ScriptedClient("4", with_tokens=True), model="scripted"))
    line = json.loads(records.encode_record(results.records[0]))
    validator = Draft202012Validator(schema)
    validator.validate(line)
    assert not validator.is_valid({**line, "reward": "full"})


# Links


def anchors_of(page: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", page.read_text("utf-8")), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [*PAGES, *READMES], ids=lambda page: f"{page.parent.name}-{page.stem}")
def test_links_lead_somewhere(page):
    for target in re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", _FENCE.sub("", page.read_text("utf-8"))):
        if re.match(r"https?://", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), target
        assert not anchor or anchor in anchors_of(file), target


def test_every_page_is_reached_from_the_index():
    linked = set(re.findall(r"\]\(([\w.-]+\.md)\)", (DOCS / "index.md").read_text("utf-8")))
    assert {page.name for page in PAGES} - {"index.md"} <= linked
