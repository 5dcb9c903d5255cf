import json
import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import uv

from verifiers.cli.init import Kind, create
from verifiers.errors import ConfigError, SetupError

REPOSITORY = Path(__file__).parents[1]
TEMPLATES = [kind.value for kind in Kind]


def run(*arguments: str, folder: Path) -> subprocess.CompletedProcess:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-P", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)


def vf_init(*arguments: str, folder: Path) -> subprocess.CompletedProcess:
    return run("-c", "from verifiers.cli.main import init_main; init_main()", *arguments, folder=folder)


FORMS = [*((template, False) for template in TEMPLATES), ("single-turn", True)]


@pytest.mark.parametrize(("template", "multi_file"), FORMS)
def test_a_new_environment_passes_its_own_test_as_it_is(template, multi_file, tmp_path):
    folder = create("tommy-env", template, path=tmp_path, multi_file=multi_file)
    done = run("-m", "pytest", "-q", "-p", "no:cacheprovider", folder=folder)
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_new_environment_is_clean_for_the_linter_and_formatter(template, tmp_path):
    folder = create("my-env", template, path=tmp_path)
    rules = ["--isolated", "--line-length", "120"]
    select = ["--select", "E,F,I,UP,B,SIM,C4"]
    check = run(
        "-m",
        "ruff",
        "check",
        *rules,
        *select,
        "--config",
        "lint.isort.known-third-party=['verifiers']",
        ".",
        folder=folder,
    )
    assert check.returncode == 0, check.stdout
    assert run("-m", "ruff", "format", "--check", *rules, ".", folder=folder).returncode == 0


@pytest.mark.parametrize("template", TEMPLATES)
def test_package_has_what_a_published_environment_needs(template, tmp_path):
    folder = create("Tommy_env", template, path=tmp_path)
    assert folder == tmp_path / "Tommy_env"
    pyproject = tomllib.loads((folder / "pyproject.toml").read_text())
    project = pyproject["project"]
    assert (project["name"], project["version"]) == ("Tommy_env", "0.1.0")
    assert project["description"]
    assert project["tags"]
    assert project["requires-python"]
    assert any(need.startswith("verifiers") for need in project["dependencies"])
    assert pyproject["build-system"]["build-backend"] == "hatchling.build"
    assert pyproject["tool"]["hatch"]["build"]["include"] == ["Tommy_env.py", "pyproject.toml"]
    assert pyproject["tool"]["verifiers"]["eval"] == {"num_examples": 5, "rollouts_per_example": 3}
    readme = (folder / "README.md").read_text()
    for section in ("Overview", "Datasets", "Task", "Quickstart", "Environment Arguments", "Metrics"):
        assert f"### {section}\n" in readme
    assert "$" not in readme
    for file in folder.rglob("*"):
        if file.is_file():
            assert "my-env" not in file.read_text().replace("Tommy_env", "")
            assert "my_env" not in file.read_text().replace("Tommy_env", "")


@pytest.mark.parametrize("template", TEMPLATES)
def test_readme_lists_every_argument_with_its_default(template, tmp_path):
    import ast

    folder = create("tommy-env", template, path=tmp_path)
    tree = ast.parse((folder / "tommy_env.py").read_text())
    function = next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "load_environment")
    readme = (folder / "README.md").read_text()
    for argument, default in zip(function.args.args, function.args.defaults, strict=True):
        row = next(line for line in readme.splitlines() if line.startswith(f"| `{argument.arg}` "))
        assert f"`{ast.unparse(default)}`".replace("'", '"') in row


def test_next_commands_are_printed(tmp_path):
    done = vf_init("tommy-env", folder=tmp_path)
    assert done.stdout.splitlines()[1:] == ["  vf-install tommy-env", "  vf-eval tommy-env"]
    done = vf_init("other-env", "-p", "envs", "--json", folder=tmp_path)
    assert json.loads(done.stdout)["next"] == ["vf-install other-env -p envs", "vf-eval other-env"]
    assert (tmp_path / "envs" / "other_env" / "other_env.py").is_file()


@pytest.mark.parametrize("name", ["json", "verifiers", "datasets", "a b", "../x"])
def test_names_that_cannot_be_are_refused_and_nothing_is_written(name, tmp_path):
    with pytest.raises(ConfigError):
        create(name, path=tmp_path)
    done = vf_init(name, folder=tmp_path)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (3, "", 1)
    assert list(tmp_path.iterdir()) == []


def test_a_name_with_an_owner_is_refused_with_the_plain_command(tmp_path):
    with pytest.raises(SetupError, match="vf-init game"):
        create("ada/game", path=tmp_path)


def test_work_in_a_folder_is_never_overwritten(tmp_path):
    folder = create("tommy-env", path=tmp_path)
    (folder / "tommy_env.py").write_text("# mine\n")
    with pytest.raises(SetupError, match="--rewrite-readme"):
        create("tommy-env", "tools", path=tmp_path)
    (folder / "README.md").write_text("old")
    create("tommy-env", path=tmp_path, rewrite_readme=True)
    assert (folder / "tommy_env.py").read_text() == "# mine\n"
    assert "### Overview" in (folder / "README.md").read_text()


def test_an_empty_folder_is_filled(tmp_path):
    (tmp_path / "tommy_env").mkdir()
    assert (create("tommy-env", path=tmp_path) / "README.md").is_file()


def test_openenv_is_refused_in_one_line(tmp_path):
    done = vf_init("tommy-env", "--openenv", folder=tmp_path)
    assert done.returncode == 3
    assert "--openenv is not supported here" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_templates_are_in_the_wheel(tmp_path):
    build = [uv.find_uv_bin(), "build", "--wheel", "-q", "-o", str(tmp_path), str(REPOSITORY)]
    subprocess.run(build, check=True, capture_output=True)
    names = zipfile.ZipFile(next(tmp_path.glob("*.whl"))).namelist()
    here = REPOSITORY / "verifiers" / "cli" / "templates"
    files = [
        f"verifiers/cli/templates/{file.relative_to(here).as_posix()}" for file in here.rglob("*") if file.is_file()
    ]
    assert len(files) == 2 + 3 * len(TEMPLATES)
    assert set(files) <= set(names)


@pytest.mark.slow
def test_defaults_of_two_environments_installed_from_wheels_do_not_mix(tmp_path):
    """Both wheels bring a site-packages/pyproject.toml, and the second overwrites the first's."""
    venv = tmp_path / "venv"
    subprocess.run([uv.find_uv_bin(), "venv", "-q", "-p", sys.executable, str(venv)], check=True)
    for name, examples in (("zz-one", 5), ("zz-two", 9)):
        folder = create(name, path=tmp_path)
        file = folder / "pyproject.toml"
        file.write_text(file.read_text().replace("num_examples = 5", f"num_examples = {examples}"))
        install = [
            uv.find_uv_bin(),
            "pip",
            "install",
            "-q",
            "--no-deps",
            "-p",
            str(venv / "bin" / "python"),
            str(folder),
        ]
        subprocess.run(install, check=True, capture_output=True)
    code = f"import sys; sys.path[:0] = [{str(next((venv / 'lib').glob('*/site-packages')))!r}]\n" + (
        "from verifiers.loading import eval_defaults as d; print(d('zz-one').num_examples, d('zz-two').num_examples)"
    )
    assert run("-c", code, folder=tmp_path).stdout.strip() == "5 9"
