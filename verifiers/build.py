"""`build`: an environment's wheel and sdist, with uv, and a look at whether they hold what an installation needs."""

from __future__ import annotations

import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from verifiers.env_source import project_of, source_of
from verifiers.errors import SetupError
from verifiers.loading import ENVIRONMENTS
from verifiers.refs import EnvRef, normalised
from verifiers.uv_program import run_uv

PYPROJECT = "pyproject.toml"


@dataclass(frozen=True, slots=True)
class Built:
    """The two files of one version."""

    name: str
    version: str
    wheel: Path
    sdist: Path


def build(spec: str, *, path: str | Path = ENVIRONMENTS, output: str | Path | None = None) -> Built:
    """Builds the environment in a folder, or of a name in `path`; into the folder's own `dist` unless told otherwise.

    Raises SetupError when uv fails, or when the module or pyproject.toml is missing from what was built.
    """
    source = source_of(spec, path=path)
    if source.kind != "folder":
        raise SetupError(f"cannot build '{spec}': it is no folder here. Give the folder of an environment's package")
    folder = Path(source.target)
    project = project_of(folder)
    target = Path(output) if output is not None else folder / "dist"
    before = {file: file.stat().st_mtime_ns for file in target.glob("*")} if target.is_dir() else {}
    run_uv(["build", "--out-dir", str(target), str(folder)])
    fresh = [f for f in target.glob("*") if before.get(f) != f.stat().st_mtime_ns]
    wheel = next(file for file in fresh if file.suffix == ".whl")
    sdist = next(file for file in fresh if file.name.endswith(".tar.gz"))
    check_contents(project["name"], wheel, sdist)
    return Built(project["name"], wheel.name.split("-")[1], wheel, sdist)


def check_contents(name: str, wheel: Path, sdist: Path) -> None:
    """Raises SetupError naming the file that lacks the module or the pyproject.toml, and what to write where."""
    module = EnvRef.parse(name).module
    with zipfile.ZipFile(wheel) as opened:
        in_wheel = opened.namelist()
    with tarfile.open(sdist) as opened:  # every name there begins with the folder name-version/
        in_sdist = [member.partition("/")[2].removeprefix("src/") for member in opened.getnames()]
    for file, names in ((wheel, in_wheel), (sdist, in_sdist)):
        if not {f"{module}.py", f"{module}/__init__.py"} & set(names) and not _declares_module(names, wheel):
            raise SetupError(
                f"{file} has no module '{module}': installed from it, '{normalised(name)}' could not be loaded. "
                f'With hatchling: [tool.hatch.build] include = ["{module}.py", "{PYPROJECT}"]'
            )
    kept = [n for n in in_wheel if n == PYPROJECT or n.endswith(f"/{PYPROJECT}")]
    if not kept:
        raise SetupError(
            f"{wheel} has no {PYPROJECT}: its [tool.verifiers] settings would be lost. With hatchling: "
            f'[tool.hatch.build.targets.wheel.extra-metadata] "{PYPROJECT}" = "{PYPROJECT}"'
        )
    if PYPROJECT not in in_sdist:
        raise SetupError(f'{sdist} has no {PYPROJECT}. With hatchling: [tool.hatch.build] include = [… "{PYPROJECT}"]')


def _declares_module(names: list[str], wheel: Path) -> bool:
    """Whether an entry point names a module of another name, and `names` has that one."""
    with zipfile.ZipFile(wheel) as opened:
        lists = [opened.read(n).decode() for n in opened.namelist() if n.endswith(".dist-info/entry_points.txt")]
    section = "".join(lists).partition("[verifiers.environments]")[2].partition("[")[0]
    modules = [line.split("=", 1)[1].split(":")[0].strip() for line in section.splitlines() if "=" in line]
    return any({f"{m.replace('.', '/')}.py", f"{m.replace('.', '/')}/__init__.py"} & set(names) for m in modules)
