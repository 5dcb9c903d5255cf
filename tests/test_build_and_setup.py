"""`vf-build` and `vf-setup` as programs, with the real uv."""

import json
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from loopback import ROOT, outside_variables

from verifiers.cli.init import create
from verifiers.cli.setup import set_up
from verifiers.errors import SetupError
from verifiers.eval.endpoints import read_endpoints


def vf(program: str, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    code = f"from verifiers.cli.main import {program}_main; {program}_main()"
    variables = outside_variables() | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-P", "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=variables, timeout=300)


# vf-build


@pytest.mark.slow
@pytest.mark.parametrize("multi_file", [False, True])
def test_a_new_environment_builds_into_two_files_that_hold_it(tmp_path, multi_file):
    create("zz-game", path=tmp_path / "environments", multi_file=multi_file)
    done = vf("build", "zz-game", "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    built = json.loads(done.stdout)
    assert (built["name"], built["version"]) == ("zz-game", "0.1.0")
    inside = "zz_game/zz_game.py" if multi_file else "zz_game.py"
    wheel = zipfile.ZipFile(tmp_path / built["wheel"])
    assert inside in wheel.namelist()
    kept = next(name for name in wheel.namelist() if name.endswith("extra_metadata/pyproject.toml"))
    assert tomllib.loads(wheel.read(kept).decode())["project"]["name"] == "zz-game"
    with tarfile.open(tmp_path / built["sdist"]) as sdist:
        assert {f"zz_game-0.1.0/{inside}", "zz_game-0.1.0/pyproject.toml"} <= set(sdist.getnames())


@pytest.mark.slow
def test_it_says_where_the_files_are_and_takes_a_folder(tmp_path):
    folder = create("zz-game", path=tmp_path)
    done = vf("build", str(folder), "-o", "out", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    first, *files = done.stdout.splitlines()
    assert first == "built zz-game 0.1.0:"
    assert [Path(line.strip()).suffix for line in files] == [".whl", ".gz"]
    assert all((tmp_path / line.strip()).is_file() for line in files)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('include = ["zz_game.py", "pyproject.toml"]', 'include = ["README.md"]', "has no module 'zz_game'"),
        ('"pyproject.toml" = "pyproject.toml"', "", "has no pyproject.toml"),
        ('build-backend = "hatchling.build"', 'build-backend = "hatchling.nothing"', "uv build failed"),
    ],
)
def test_a_package_that_would_not_work_is_refused(tmp_path, old, new, told):
    folder = create("zz-game", path=tmp_path)
    file = folder / "pyproject.toml"
    text = file.read_text()
    assert old in text
    if told == "has no pyproject.toml":
        text = text.replace('include = ["zz_game.py", "pyproject.toml"]', 'include = ["zz_game.py"]')
    file.write_text(text.replace(old, new))
    done = vf("build", str(folder), folder=tmp_path)
    assert (done.returncode, done.stdout) == (3, "")
    assert told in done.stderr


def test_what_is_no_folder_is_not_built(tmp_path):
    done = vf("build", "zz-nothing", folder=tmp_path)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (3, "", 1)


# vf-setup


def test_a_workspace_has_what_the_other_commands_look_for(tmp_path):
    done = vf("setup", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "vf-init my-env" in done.stdout
    found = {str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*") if file.is_file()}
    assert found == {"environments/.gitkeep", "configs/endpoints.toml", ".gitignore", "AGENTS.md"}
    assert set(read_endpoints(tmp_path / "configs" / "endpoints.toml")) == {"small", "own"}
    assert "outputs/" in (tmp_path / ".gitignore").read_text().splitlines()


def test_nothing_is_overwritten_and_then_nothing_is_written(tmp_path):
    (tmp_path / "AGENTS.md").write_text("mine")
    done = vf("setup", folder=tmp_path)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (3, "", 1)
    assert "AGENTS.md" in done.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["AGENTS.md"]
    assert (tmp_path / "AGENTS.md").read_text() == "mine"
    assert vf("setup", "--skip-agents-md", "--skip-install", "--no-interactive", folder=tmp_path).returncode == 0
    assert (tmp_path / "AGENTS.md").read_text() == "mine"


def test_a_folder_of_environments_that_is_in_use_is_kept(tmp_path):
    create("zz-game", path=tmp_path / "environments")
    assert tmp_path / "environments" / ".gitkeep" not in set_up(tmp_path)


def test_an_agent_that_does_not_read_agents_md_gets_a_pointer(tmp_path):
    written = set_up(tmp_path, agents=["codex", " Claude"])
    assert tmp_path / "CLAUDE.md" in written
    assert "AGENTS.md" in (tmp_path / "CLAUDE.md").read_text()
    with pytest.raises(SetupError, match="codex, cursor"):
        set_up(tmp_path / "other", agents=["clippy"])


def test_another_trainer_is_not_installed(tmp_path):
    done = vf("setup", "--prime-rl", folder=tmp_path)
    assert (done.returncode, list(tmp_path.iterdir())) == (3, [])
    assert "not supported here" in done.stderr


def test_every_command_that_agents_are_told_of_exists():
    import re

    from verifiers.cli.main import COMMANDS

    text = (ROOT / "verifiers" / "cli" / "workspace" / "AGENTS.md").read_text()
    named = set(re.findall(r"^vf[- ](\w+)", text, re.M))
    assert len(named) > 6
    assert named <= set(COMMANDS)
