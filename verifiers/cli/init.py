"""`vf init`: a new environment's package from a template, ready to install, evaluate and test."""

from __future__ import annotations

import json
import re
import tomllib
from enum import StrEnum
from importlib import resources
from pathlib import Path
from string import Template
from typing import Annotated

import typer

from verifiers.cli.install import Debug
from verifiers.errors import SetupError
from verifiers.refs import EnvRef

NAME, MODULE = "my-env", "my_env"  # what the template files call the environment


class Kind(StrEnum):
    single_turn = "single-turn"
    multi_turn = "multi-turn"
    tools = "tools"
    judge = "judge"
    sandbox = "sandbox"


def command(
    environment: Annotated[str, typer.Argument(metavar="NAME", help="Name of the new environment, such as my-env.")],
    template: Annotated[Kind, typer.Option("-t", "--template", help="What to start from.")] = Kind.single_turn,
    path: Annotated[
        str, typer.Option("-p", "--path", help="Folder that gets the environment's folder.")
    ] = "./environments",
    rewrite_readme: Annotated[
        bool, typer.Option("--rewrite-readme", help="Write only README.md anew, in a folder that exists.")
    ] = False,
    multi_file: Annotated[bool, typer.Option("--multi-file", help="A package folder instead of one module.")] = False,
    openenv: Annotated[bool, typer.Option("--openenv", help="Not supported by this library.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    debug: Debug = False,
) -> None:
    """Starts a new environment from a template. The result evaluates and passes its own test as it is."""
    if openenv:
        raise SetupError("--openenv is not supported here. Try: vf-init NAME, and return a vf.OpenEnvEnv from it")
    folder = create(environment, template.value, path=path, rewrite_readme=rewrite_readme, multi_file=multi_file)
    ref = EnvRef.parse(environment)
    where = "" if Path(path) == Path("environments") else f" -p {path}"
    commands = [f"vf-install {ref.name}{where}", f"vf-eval {ref.name}"]
    if as_json:
        typer.echo(json.dumps({"name": ref.name, "folder": str(folder), "next": commands}))
        return
    typer.echo(f"{'wrote README.md of' if rewrite_readme else 'created'} {folder}. Next:")
    for line in commands:
        typer.echo(f"  {line}")


def create(
    name: str,
    template: str = "single-turn",
    *,
    path: str | Path = "./environments",
    rewrite_readme: bool = False,
    multi_file: bool = False,
) -> Path:
    """Writes the package and returns its folder. Raises SetupError when the folder has something in it."""
    ref = EnvRef.parse(name)
    if ref.owner or ref.version:
        raise SetupError(
            f"'{name}': an owner is added on publishing and a version in pyproject.toml. Try: vf-init {ref.name}"
        )
    folder = Path(path) / ref.module
    files = package_files(ref, template, folder, multi_file=multi_file)
    if rewrite_readme:
        if not folder.is_dir():
            raise SetupError(f"no folder {folder} with a README.md to rewrite. Try: vf-init {ref.name}")
        files = {"README.md": files["README.md"]}
    elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise SetupError(
            f"{folder} exists and is not empty. Choose another name, or rewrite its README.md: --rewrite-readme"
        )
    try:
        for relative, text in files.items():
            file = folder / relative
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, "utf-8")
    except OSError as error:
        raise SetupError(f"cannot write {folder}: {error.strerror or error}") from error
    return folder


def package_files(ref: EnvRef, template: str, folder: Path, *, multi_file: bool = False) -> dict[str, str]:
    """Path inside the package → text."""
    about = tomllib.loads(_read(ref, template, "about.toml"))
    declared = f"\n{about['validate'].strip()}\n" if "validate" in about else ""
    values = {
        **{key: value.strip() for key, value in about.items() if isinstance(value, str)},
        "tags": ", ".join(f'"{tag}"' for tag in about["tags"]),
        "tag_list": ", ".join(about["tags"]),
        "module_files": f"{ref.module}/**/*.py" if multi_file else f"{ref.module}.py",
        "folder": folder.as_posix(),
        "validate": declared,
    }
    inner = f"{ref.module}/" if multi_file else ""
    texts = {
        "pyproject.toml": Template(_read(ref, "pyproject.toml.tmpl")).substitute(values),
        "README.md": Template(_read(ref, "README.md.tmpl")).substitute(values),
        f"{inner}{ref.module}.py": _read(ref, template, f"{MODULE}.py.tmpl"),
        f"tests/test_{ref.module}.py": _read(ref, template, f"test_{MODULE}.py.tmpl"),
    }
    if multi_file:
        texts[f"{inner}__init__.py"] = _PACKAGE.format(about=about["description"], module=ref.module)
    return texts


_PACKAGE = '''"""{about}"""

from {module}.{module} import load_environment

__all__ = ["load_environment"]
'''


def _read(ref: EnvRef, *parts: str) -> str:
    """A template file with the environment's own names in it."""
    text = resources.files("verifiers.cli").joinpath("templates", *parts).read_text("utf-8")
    names = {NAME: ref.name, MODULE: ref.module}
    return re.sub("|".join(names), lambda found: names[found.group()], text)  # in one pass: "tommy-env" holds NAME
