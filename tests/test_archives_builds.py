"""What today's build tools write is taken: their wheels and sdists pass every check, alone and as a pair."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import uv
from loopback import ROOT

from verifiers import archives
from verifiers.archives import ArchiveRefused, Limits
from verifiers.build import build
from verifiers.cli.init import Kind, create

pytestmark = pytest.mark.slow

PROJECT = """[build-system]
requires = {requires}
build-backend = "{backend}"

[project]
name = "zz-game"
version = "0.1.0rc1"
description = "Größe"
readme = "README.md"
requires-python = ">=3.10"
{license}
authors = [{{ name = "Ada Łovelace", email = "ada@example.com" }}]
keywords = ["a b", "c"]
dependencies = ["verifiers>=0.1.3", "Foo_Bar[x,a] >=1 ; python_version<'3.13'"]

[project.optional-dependencies]
dev = ["pytest"]
all = ["zz-game[dev]"]

[project.scripts]
zz-play = "zz_game.core:load_environment"

[project.entry-points."verifiers.environments"]
zz-game = "zz_game"

[project.urls]
Home = "https://example.com/a"

{extra}
"""
SPDX = 'license = "Apache-2.0"\nlicense-files = ["LICENSE"]'
OLD_LICENSE = 'license = { text = "Apache-2.0" }'
SETUPTOOLS = """[tool.setuptools.packages.find]
where = ["src"]
[tool.setuptools.package-data]
zz_game = ["daten/*"]
"""
# name → (back-end, requirement, folder of the sources, licence, more of the pyproject.toml)
TOOLS = {
    "hatchling": ("hatchling.build", "hatchling", ".", SPDX, ""),
    "setuptools": ("setuptools.build_meta", "setuptools", "src", SPDX, SETUPTOOLS),
    "setuptools-75": ("setuptools.build_meta", "setuptools==75.8.0", "src", OLD_LICENSE, SETUPTOOLS),
    "flit": ("flit_core.buildapi", "flit_core>=3.11", ".", SPDX, '[tool.flit.module]\nname = "zz_game"'),
    "poetry": ("poetry.core.masonry.api", "poetry-core>=2", ".", SPDX, ""),
    "pdm": ("pdm.backend", "pdm-backend", "src", SPDX, ""),
    "uv": ("uv_build", "uv_build", "src", SPDX, ""),
}


def built_by(tool: str, folder: Path) -> Path:
    """The folder of the wheel and the sdist of a package with folders, an empty module and a name beyond ASCII."""
    backend, requirement, source, license, extra = TOOLS[tool]
    package = folder / source / "zz_game"
    (package / "daten").mkdir(parents=True)
    (package / "__init__.py").write_text("from zz_game.core import load_environment\n")
    (package / "core.py").write_text("def load_environment(**kwargs):\n    return None\n")
    (package / "empty.py").write_text("")
    (package / "daten" / "wörter.txt").write_text("a\n")
    (folder / "README.md").write_text("# Zz — täst\n", "utf-8")
    (folder / "LICENSE").write_text("yes\n")
    text = PROJECT.format(requires=[requirement], backend=backend, license=license, extra=extra)
    (folder / "pyproject.toml").write_text(text, "utf-8")
    run_uv("build", "--out-dir", str(folder / "out"), str(folder))
    return folder / "out"


def run_uv(*arguments: str) -> None:
    done = subprocess.run([uv.find_uv_bin(), *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr


def checked_pair(folder: Path) -> tuple[archives.Checked, archives.Checked]:
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    pair = archives.check_wheel(wheel), archives.check_sdist(sdist)
    archives.check_pair(*pair)
    return pair


@pytest.mark.parametrize("tool", TOOLS)
def test_what_a_build_tool_writes_is_taken(tool, tmp_path):
    wheel, sdist = checked_pair(built_by(tool, tmp_path))
    for checked in (wheel, sdist):
        assert (checked.project, checked.version, checked.module) == ("zz-game", "0.1.0rc1", "zz_game")
        assert checked.metadata.authors == ("Ada Łovelace <ada@example.com>",)
        assert checked.metadata.license == "Apache-2.0"
        assert checked.metadata.keywords == ("a b", "c")
        assert any(member.path.endswith("zz_game/daten/wörter.txt") for member in checked.members)


def test_the_sdist_of_an_old_build_tool_is_refused_with_the_way_out(tmp_path):
    (sdist,) = built_by_old_setuptools(tmp_path).glob("*.tar.gz")
    with pytest.raises(ArchiveRefused, match=r"metadata 2\.1.*Use a newer build tool"):
        archives.check_sdist(sdist)


def built_by_old_setuptools(folder: Path) -> Path:
    (folder / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["setuptools==69.5.1", "wheel==0.43.0"]\nbuild-backend = "setuptools.build_meta"\n'
        '[project]\nname = "zz_game"\nversion = "1.0"\n'
    )
    (folder / "zz_game.py").write_text("def load_environment(): ...\n")
    run_uv("build", "--sdist", "--out-dir", str(folder / "out"), str(folder))
    return folder / "out"


@pytest.mark.parametrize("template", [kind.value for kind in Kind])
def test_a_new_environment_of_every_template_is_taken(template, tmp_path):
    built = build(str(create("zz-game", template, path=tmp_path)))
    _, sdist = checked_pair(built.wheel.parent)
    assert sdist.environment is not None
    assert sdist.environment.eval.num_examples == 5
    assert len(sdist.environment.tags) > 1 and sdist.environment.unknown == ()


@pytest.mark.parametrize("name", ["gsm8k", "math_env", "reverse_letters", "reverse_text", "tool_math", "wordle"])
def test_our_own_environments_are_taken(name, tmp_path):
    build(str(ROOT / "environments" / name), output=tmp_path)
    wheel, sdist = checked_pair(tmp_path)
    assert wheel.environment == sdist.environment


def test_our_own_wheel_is_taken_where_packages_need_not_be_environments(tmp_path):
    run_uv("build", "--wheel", "--out-dir", str(tmp_path), str(ROOT))
    (wheel,) = tmp_path.glob("*.whl")
    assert archives.check_wheel(wheel, limits=Limits(environments_only=False)).project == "verifiers"
    with pytest.raises(ArchiveRefused) as caught:
        archives.check_wheel(wheel)
    assert caught.value.code == "name_taken"
