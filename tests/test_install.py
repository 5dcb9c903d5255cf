"""Installing for real: `vf install` in a new virtual environment, with uv and git."""

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import uv

from verifiers.env_source import Source, source_of
from verifiers.errors import EnvironmentNotFound, SetupError
from verifiers.uv_program import useful_lines

REPOSITORY = Path(__file__).parents[1]


class Vf:
    """Runs `vf` with the interpreter of a virtual environment, in a working folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "work"
        self.folder.mkdir()
        self.python = folder / "venv" / "bin" / "python"
        subprocess.run([uv.find_uv_bin(), "venv", "-q", "-p", sys.executable, str(folder / "venv")], check=True)
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        self.site = folder / "venv" / "lib" / version / "site-packages"
        # verifiers and its dependencies as an editable installation leaves them, without installing 70 packages anew
        (self.site / "_verifiers.pth").write_text(f"{REPOSITORY}\n{sysconfig.get_path('purelib')}\n")
        info = self.site / "verifiers-1.0.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: verifiers\nVersion: 1.0.0\n")
        (info / "RECORD").write_text("_verifiers.pth,,\n")

    def __call__(self, *arguments: str, code: int = 0) -> str:
        """Its output, both streams; the exit code is checked."""
        done = self.run("-m", "verifiers.cli.main", *arguments)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def run(self, *arguments: str) -> subprocess.CompletedProcess:
        environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VF_LOG_LEVEL")}
        command = [str(self.python), "-P", *arguments]
        return subprocess.run(command, capture_output=True, text=True, cwd=self.folder, env=environment)

    def evaluate(self, code: str) -> str:
        done = self.run("-c", code)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


@pytest.fixture
def vf(tmp_path):
    return Vf(tmp_path)


ENV = """
class Env:
    env_id = None
    env_args = None
    def rollout(self): ...
    def evaluate(self): ...
def load_environment(): return Env()
"""


def write_package(folder: Path, name: str, *, needs: str = '"verifiers>=0.1"', more: str = "", text: str = ENV) -> Path:
    folder.mkdir(parents=True)
    module = name.replace("-", "_")
    (folder / f"{module}.py").write_text(text)
    (folder / "pyproject.toml").write_text(
        f'[project]\nname = "{name}"\nversion = "0.1.0"\ndescription = "a game"\ndependencies = [{needs}]\n'
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        f'[tool.hatch.build]\ninclude = ["{module}.py", "pyproject.toml"{more}]\n'
        "[tool.verifiers.eval]\nnum_examples = 4\n"
    )
    return folder


def commit(folder: Path) -> Path:
    git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q", "-b", "trunk"], ["add", "."], ["commit", "-qm", "x"]):
        subprocess.run([*git, *command], check=True)
    return folder


LOAD = "from verifiers.loading import load_environment as load; print(load('zz-game').env_id)"


@pytest.mark.slow
def test_a_name_is_installed_from_environments_listed_loaded_and_removed(vf):
    write_package(vf.folder / "environments" / "zz_game", "zz-game")
    assert "not installed" in vf("list")
    assert "Next: vf-eval zz-game" in vf("install", "zz-game")
    assert vf.evaluate(LOAD) == "zz-game"
    row = next(row for row in json.loads(vf("list", "--json")) if row["name"] == "zz-game")
    assert row["installed"]
    assert row["summary"] == "a game"
    assert Path(row["place"]).name == "zz_game"
    assert vf.evaluate("from verifiers.loading import *; print(eval_defaults('zz-game').num_examples)") == "4"
    assert "removed zz-game 0.1.0" in vf("uninstall", "zz_game")
    assert "no environment 'zz-game' to remove" in vf("uninstall", "zz-game", code=3)
    assert (vf.folder / "environments" / "zz_game" / "zz_game.py").exists()


@pytest.mark.slow
def test_verifiers_stays_whatever_the_environment_pins(vf):
    write_package(vf.folder / "zz", "zz-game", needs='"verifiers==0.1.5"')
    output = vf("install", "./zz")
    assert output.count("asks for 'verifiers==0.1.5'; verifiers 1.0.0 stays") == 1
    assert vf.evaluate(
        "import importlib.metadata as m, verifiers.loading as l; print(m.version('verifiers'), l.__file__)"
    ) == (f"1.0.0 {REPOSITORY / 'verifiers' / 'loading.py'}")
    assert vf.evaluate(LOAD) == "zz-game"


@pytest.mark.slow
def test_an_environment_that_brings_a_verifiers_of_its_own_is_reported_with_the_repair(vf, tmp_path):
    folder = write_package(tmp_path / "repo", "zz-game", more=', "verifiers/*.py"')
    (folder / "verifiers").mkdir()
    (folder / "verifiers" / "__init__.py").write_text("# another library\n")
    output = vf("install", f"git+{commit(folder).as_uri()}", code=3)
    assert "replaced verifiers 1.0.0" in output
    assert "--reinstall-package verifiers" in output


@pytest.mark.slow
def test_git_repository_with_several_environments_gives_the_one_named(vf, tmp_path):
    repo = tmp_path / "repo"
    write_package(repo / "environments" / "zz_game", "zz-game")
    write_package(repo / "environments" / "zz_other", "zz-other")
    commit(repo)
    assert "which environment" in vf("install", str(repo), code=3)
    assert "found there: zz_game, zz_other" in vf("install", "zz-third", "-r", repo.as_uri(), code=3)
    assert "cannot fetch" in vf("install", "zz-game", "-r", repo.as_uri(), "-b", "no-such-branch", code=3)
    done = json.loads(vf.run("-m", "verifiers.cli.main", "install", "zz-game", "-r", repo.as_uri(), "--json").stdout)
    assert [env["name"] for env in done] == ["zz-game"]
    assert vf.evaluate(LOAD) == "zz-game"
    info = "from verifiers.loading import *; e = env_info('zz-game'); print(e.version, e.wheel_sha256[:6], e.dirty)"
    assert vf.evaluate(info) == "0.1.0 files: False"


@pytest.mark.slow
def test_module_of_another_package_is_never_replaced(vf):
    write_package(vf.folder / "theirs", "zz-other")
    info = vf.site / "zz_library-2.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: zz-library\nVersion: 2.0\n")
    (info / "RECORD").write_text("zz_other.py,,\n")
    (vf.site / "zz_other.py").write_text("")
    output = vf("install", "./theirs", code=3)
    assert "the module 'zz_other' belongs to the package zz-library 2.0" in output


@pytest.mark.slow
def test_missing_environment_is_installed_from_environments_and_usable_at_once(vf):
    write_package(vf.folder / "environments" / "zz_game", "zz-game")
    code = (
        "import sys\nfrom verifiers.install import ensure_installed\n"
        "from verifiers.loading import load_environment as load\n"
        "say = lambda line: print(line, file=sys.stderr)\n"
        "print(ensure_installed('zz-game', say=say), load('zz-game').env_id, ensure_installed('zz-game', say=say))"
    )
    done = vf.run("-c", code)
    assert done.stdout.strip() == "True zz-game False", done.stderr
    assert done.stderr.count("installing it from environments/zz_game") == 1


@pytest.mark.slow
def test_of_several_names_the_good_ones_are_installed_and_the_bad_told(vf):
    write_package(vf.folder / "environments" / "zz_game", "zz-game")
    output = vf("install", "zz-gone", "zz-game", code=3)
    assert "no environment 'zz-gone'" in output
    assert "installed zz-game 0.1.0" in output


@pytest.mark.slow
def test_a_failed_build_shows_uvs_reason(vf):
    folder = write_package(vf.folder / "zz", "zz-game")
    (folder / "pyproject.toml").write_text(
        (folder / "pyproject.toml").read_text().replace('"0.1.0"', '"not a version"')
    )
    output = vf("install", "./zz", code=3)
    assert "uv pip install failed" in output
    assert "version" in output
    assert "Using Python" not in output


def test_installation_refuses_names_before_anything_runs(tmp_path, monkeypatch):
    from verifiers.install import install

    monkeypatch.chdir(tmp_path)
    with pytest.raises(SetupError, match="standard library"):
        install(str(write_package(tmp_path / "a", "json")))
    with pytest.raises(SetupError, match="a package that this library needs"):
        install(str(write_package(tmp_path / "b", "openai")))
    with pytest.raises(SetupError, match="name of its own dependency"):
        install(str(write_package(tmp_path / "c", "zz-textgames", needs='"zz_textgames[all]>=1"')))
    with pytest.raises(SetupError, match=r"zz_tool\.py has no load_environment"):
        install(str(write_package(tmp_path / "d", "zz-tool", text="VALUE = 1\n")))
    with pytest.raises(SetupError, match=r"no \[project\] name"):
        (tmp_path / "e").mkdir()
        (tmp_path / "e" / "pyproject.toml").write_text("[tool.x]\n")
        install(str(tmp_path / "e"))


def test_a_name_of_an_owner_needs_a_hub(monkeypatch, tmp_path):
    from verifiers.install import install

    monkeypatch.delenv("VF_HUB_URL", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with pytest.raises(SetupError, match=r"no hub is known: set VF_HUB_URL"):
        install("ada/game@1.0")


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("git+https://host/a/b.git", Source("git", "https://host/a/b.git")),
        ("git+https://host/a/b.git@v1", Source("git", "https://host/a/b.git", "v1")),
        ("git+https://me@host/b.git@v1#subdirectory=x/y", Source("git", "https://me@host/b.git", "v1", "x/y")),
        ("git+ssh://git@host/b.git", Source("git", "ssh://git@host/b.git")),
        ("git@host:a/b.git", Source("git", "git@host:a/b.git")),
        ("https://host/a/b", Source("git", "https://host/a/b")),
    ],
)
def test_git_addresses_are_read_with_revision_and_folder(spec, expected):
    assert source_of(spec) == expected


def test_a_branch_on_the_command_line_goes_before_the_one_in_the_address():
    assert source_of("git+https://host/b.git@v1", branch="dev").revision == "dev"


def test_a_path_goes_before_a_name_and_the_index_is_asked_only_when_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_package(tmp_path / "environments" / "zz_game", "zz-game")
    assert source_of("zz-game").target == "environments/zz_game"
    assert source_of("environments/zz_game").kind == "folder"
    with pytest.raises(EnvironmentNotFound, match="Did you mean zz_game"):
        source_of("zz-gam")
    with pytest.raises(EnvironmentNotFound, match="--from-index"):
        source_of("wordle")
    assert source_of("wordle@1.0", from_index=True).kind == "index"
    with pytest.raises(EnvironmentNotFound, match="no such file or folder"):
        source_of("./nowhere")


def test_of_uvs_output_the_complaint_is_kept():
    output = "Using Python 3.11\nResolved 3 packages in 2ms\nerror: no such thing\n  Caused by: x\n"
    assert useful_lines(output) == "no such thing\n  Caused by: x"
    long = useful_lines("\n".join(f"line {n}" for n in range(100)))
    assert "line 0" in long
    assert "line 99" in long
    assert len(long.splitlines()) < 15
