import asyncio
import importlib
import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from verifiers.errors import ConfigError, EnvironmentLoadError, EnvironmentNotFound, MissingKeyError
from verifiers.installed import EvalDefaults, env_info, eval_defaults, installed_environments
from verifiers.loading import ensure_keys, env_args_hash, load_environment

ENV = """
    class Env:
        env_id = ""
        env_args = {}
        def rollout(self): ...
        def evaluate(self): ...

"""


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder on sys.path, and a current folder without environments."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    before = set(sys.modules)
    yield folder
    for name in set(sys.modules) - before:
        if name.startswith("zz_"):
            del sys.modules[name]
    importlib.invalidate_caches()


def module(site: Path, name: str, text: str) -> Path:
    file = site / f"{name}.py"
    file.write_text(dedent(ENV) + dedent(text))
    return file


def package(site: Path, name: str, *, version: str = "0.1.0", requires: str = "verifiers>=0.1", text: str = "") -> Path:
    """An installed distribution as an installer leaves it: module, metadata and list of files."""
    python_name = name.replace("-", "_")
    file = module(site, python_name, text or "def load_environment(): return Env()")
    info = site / f"{python_name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nSummary: a game\nRequires-Dist: {requires}\n"
    )
    (info / "RECORD").write_text(f"{python_name}.py,,\n{info.name}/METADATA,,\n{info.name}/RECORD,,\n")
    return file


def failure(env_id: str, **args) -> str:
    with pytest.raises(EnvironmentLoadError) as raised:
        load_environment(env_id, **args)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_loads_by_last_segment_and_sets_id_and_arguments_when_empty(site):
    module(site, "zz_math_env", "def load_environment(seed=0): return Env()")
    env = load_environment("ada/zz-math-env", seed=3)
    assert (env.env_id, env.env_args) == ("ada/zz-math-env", {"seed": 3})


def test_id_and_arguments_set_by_the_author_stay(site):
    text = """
        def load_environment(seed=0):
            env = Env()
            env.env_id, env.env_args = "own", {"own": 1}
            return env
    """
    module(site, "zz_own", text)
    env = load_environment("zz-own", seed=3)
    assert (env.env_id, env.env_args) == ("own", {"own": 1})


def test_async_load_environment_is_awaited_with_and_without_a_running_loop(site):
    module(site, "zz_async", "async def load_environment(): return Env()")
    assert load_environment("zz-async").env_id == "zz-async"

    async def inside():
        return load_environment("zz-async")

    assert asyncio.run(inside()).env_id == "zz-async"


def test_unknown_environment_names_near_ones_and_the_command(site):
    package(site, "zz-wordle")
    with pytest.raises(EnvironmentNotFound) as raised:
        load_environment("zz-wordl")
    assert "no environment 'zz-wordl'" in str(raised.value)
    assert "Did you mean zz-wordle" in str(raised.value)
    assert "vf-install zz-wordl" in str(raised.value)


def test_environment_lying_in_environments_uninstalled_is_told_with_the_command(site):
    folder = Path("environments/zz_local")
    folder.mkdir(parents=True)
    (folder / "pyproject.toml").write_text('[project]\nname = "zz-local"\nversion = "0"\n')
    with pytest.raises(EnvironmentNotFound, match="vf-install environments/zz_local"):
        load_environment("zz-local")


def test_folder_without_init_is_no_environment(site):
    (site / "zz_folder").mkdir()
    with pytest.raises(EnvironmentNotFound):
        load_environment("zz-folder")


def test_name_collision_says_which_file_and_whose(site):
    package(site, "zz-other", requires="requests", text="VERSION = 1")
    message = failure("zz_other")
    assert str(site / "zz_other.py") in message
    assert "belongs to the package zz-other 0.1.0" in message


def test_module_without_load_environment_says_what_to_add(site):
    file = module(site, "zz_bare", "")
    message = failure("zz-bare")
    assert str(file) in message
    assert "load_environment(**args)" in message


def test_raising_load_environment_tells_type_message_and_the_authors_line(site):
    file = module(site, "zz_raises", "def load_environment():\n    import json\n    return json.loads('{')")
    message = failure("zz-raises")
    line = file.read_text().splitlines().index("    return json.loads('{')") + 1
    assert "JSONDecodeError: Expecting" in message
    assert f"{file}:{line}" in message


def test_cause_is_chained(site):
    module(site, "zz_cause", "def load_environment(): raise KeyError('split')")
    with pytest.raises(EnvironmentLoadError) as raised:
        load_environment("zz-cause")
    assert isinstance(raised.value.__cause__, KeyError)


def test_syntax_error_names_the_line(site):
    file = module(site, "zz_syntax", "def load_environment(:\n    pass")
    line = file.read_text().splitlines().index("def load_environment(:") + 1
    assert f"{file}:{line}" in failure("zz-syntax")


def test_exit_in_the_module_is_an_error_not_an_exit(site):
    module(site, "zz_exits", "import sys\nsys.exit('no GPU')")
    assert "no GPU" in failure("zz-exits")


def test_missing_dependency_is_not_a_missing_environment(site):
    file = module(site, "zz_needs", "import zz_textgames.core\ndef load_environment(): return Env()")
    message = failure("zz-needs")
    assert "needs the module 'zz_textgames'" in message
    assert "uv pip install zz-textgames" in message
    assert str(file) in message


def test_dependency_missing_only_when_loading_is_told_the_same(site):
    module(site, "zz_late", "def load_environment():\n    import zz_textgames")
    assert "needs the module 'zz_textgames'" in failure("zz-late")


def test_name_that_verifiers_lacks_is_told_as_such(site):
    module(site, "zz_newer", "from verifiers.errors import NoSuchThing")
    assert "verifiers does not have: cannot import name 'NoSuchThing'" in failure("zz-newer")


def test_wrong_argument_names_the_nearest_and_lists_all(site):
    module(site, "zz_args", "def load_environment(split: str = 'train', max_turns=8): return Env()")
    message = failure("zz-args", max_turn=3)
    assert "has no argument 'max_turn'; did you mean 'max_turns'?" in message
    assert "split: str = 'train', max_turns=8" in message
    assert "It takes:" in failure("zz-args", colour="red")


def test_missing_required_argument_is_named(site):
    module(site, "zz_required", "def load_environment(data, seed=0): return Env()")
    assert "needs the argument 'data'" in failure("zz-required", seed=1)


def test_keyword_catch_all_takes_every_argument(site):
    module(site, "zz_open", "def load_environment(**kwargs): return Env()")
    assert load_environment("zz-open", anything=1).env_args == {"anything": 1}


def test_missing_key_passes_through(site, monkeypatch):
    monkeypatch.delenv("ZZ_KEY", raising=False)
    module(site, "zz_key", "import verifiers.loading as l\ndef load_environment(): l.ensure_keys(['ZZ_KEY'])")
    with pytest.raises(MissingKeyError, match="ZZ_KEY"):
        load_environment("zz-key")


def test_ensure_keys_names_every_missing_one_and_counts_empty_as_missing(monkeypatch):
    monkeypatch.setenv("ZZ_SET", "x")
    monkeypatch.setenv("ZZ_EMPTY", "")
    monkeypatch.delenv("ZZ_GONE", raising=False)
    ensure_keys(["ZZ_SET"])
    with pytest.raises(MissingKeyError) as raised:
        ensure_keys(["ZZ_SET", "ZZ_EMPTY", "ZZ_GONE"])
    assert raised.value.missing_keys == ["ZZ_EMPTY", "ZZ_GONE"]


@pytest.mark.parametrize(
    ("returned", "told"), [("None", "nothing: is a `return` missing?"), ("{}", "a dict, not an Env")]
)
def test_other_results_than_an_environment_are_refused(site, returned, told):
    module(site, f"zz_returns_{len(told)}", f"def load_environment(): return {returned}")
    assert told in failure(f"zz_returns_{len(told)}")


def test_other_installed_version_names_both(site):
    package(site, "zz-versioned", version="0.3.0")
    assert load_environment("zz-versioned@0.3.0").env_id == "zz-versioned"
    message = failure("zz-versioned@0.2.0")
    assert "zz-versioned@0.2.0" in message
    assert "0.3.0 is installed" in message


def test_standard_library_module_is_never_taken_for_an_environment():
    with pytest.raises(ConfigError, match="standard library"):
        load_environment("json")


def test_installed_environments_are_found_without_importing_them(site):
    package(site, "zz-listed", text="raise SystemExit('imported')\ndef load_environment(): ...")
    package(site, "zz-library", text="VALUE = 1")
    package(site, "zz-stranger", requires="verifiers-tools")
    names = [env.name for env in installed_environments() if env.name.startswith("zz-")]
    assert names == ["zz-listed"]
    env = next(env for env in installed_environments() if env.name == "zz-listed")
    assert (env.version, env.module, env.file, env.summary) == ("0.1.0", "zz_listed", site / "zz_listed.py", "a game")


def test_eval_defaults_are_the_environments_own(site):
    package(site, "zz-defaults")
    assert eval_defaults("zz-defaults") == EvalDefaults()
    text = '[project]\nname = "{}"\n[tool.verifiers.eval]\nnum_examples = 7\n'
    (site / "pyproject.toml").write_text(text.format("someone-else"))
    assert eval_defaults("zz-defaults") == EvalDefaults()
    (site / "pyproject.toml").write_text(text.format("zz_defaults"))
    assert eval_defaults("zz-defaults") == EvalDefaults(num_examples=7)


@pytest.mark.parametrize("value", ["0", "-2", '"5"', "true", "1.5"])
def test_eval_defaults_that_are_no_counts_are_refused(site, value):
    package(site, "zz-bad-defaults")
    (site / "pyproject.toml").write_text(
        f'[project]\nname = "zz-bad-defaults"\n[tool.verifiers.eval]\nrollouts_per_example = {value}\n'
    )
    with pytest.raises(ConfigError, match="rollouts_per_example"):
        eval_defaults("zz-bad-defaults")


def test_env_info_hash_follows_the_files(site):
    file = package(site, "zz-hashed", version="1.2")
    one, same = env_info("ada/zz-hashed"), env_info("ada/zz_hashed")
    assert (one.owner, one.version, one.dirty) == ("ada", "1.2", None)
    assert one.wheel_sha256 == same.wheel_sha256
    assert one.wheel_sha256.startswith("files:")
    file.write_text(file.read_text() + "# changed\n")
    assert env_info("zz-hashed").wheel_sha256 != one.wheel_sha256


def test_env_info_of_a_wheel_is_the_wheels_own_hash(site):
    package(site, "zz-wheel")
    origin = '{"url": "https://x/zz.whl", "archive_info": {"hashes": {"sha256": "ab12"}}}'
    (site / "zz_wheel-0.1.0.dist-info" / "direct_url.json").write_text(origin)
    assert env_info("zz-wheel").wheel_sha256 == "ab12"


def test_env_info_says_whether_the_source_differs_from_its_commit(site):
    file = module(site, "zz_tracked", "def load_environment(): return Env()")
    git = ["git", "-C", str(site), "-c", "user.name=a", "-c", "user.email=a@b"]
    assert env_info("zz-tracked").dirty is None
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"]):
        subprocess.run([*git, *command], check=True)
    clean = env_info("zz-tracked")
    file.write_text(file.read_text() + "# changed\n")
    changed = env_info("zz-tracked")
    assert (clean.dirty, changed.dirty) == (False, True)
    assert clean.wheel_sha256 != changed.wheel_sha256


def test_env_info_of_what_is_not_installed_is_the_name_alone(site):
    assert env_info("zz-nowhere").wheel_sha256 is None
    assert env_info("some object in memory").name == "some object in memory"


def test_arguments_hash_ignores_order():
    assert env_args_hash({"a": 1, "b": [2]}) == env_args_hash({"b": [2], "a": 1}) != env_args_hash({"a": 2, "b": [2]})


def test_loading_imports_nothing_heavy():
    heavy = ("datasets", "openai", "pydantic", "aiohttp", "rich", "typer")
    code = f"import verifiers.loading, verifiers.install, sys; print([m for m in {heavy} if m in sys.modules])"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.stdout.strip() == "[]", done.stderr
