"""Source of trainers' packages, for tests that hold an adapter against what is installed, without their engines.

Looked for beside the interpreter, in the folder of packages that VF_TEST_TRAINERS names, and in .venv-contracts.
Single definitions are run out of a file, because the file itself needs CUDA, Ray and more before its first class.
"""

from __future__ import annotations

import ast
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]


def source_of(package: str, path: str) -> ast.Module:
    """A module of the package, parsed. Skips the test when there is none."""
    spec = find_spec(package)
    folders = [Path(found) for found in (spec.submodule_search_locations or ())] if spec else []
    if named := os.environ.get("VF_TEST_TRAINERS"):
        folders.append(Path(named) / package)
    folders += [path / package for path in (ROOT / ".venv-contracts").glob("lib/python*/site-packages")]
    for folder in folders:
        if (file := folder / path).is_file():
            return ast.parse(file.read_text("utf-8"))
    pytest.skip(f"needs the source of {package}: uv pip install --no-deps, and VF_TEST_TRAINERS names the folder")


def definition(module: ast.Module, name: str) -> Any:
    return next(node for node in module.body if getattr(node, "name", None) == name)


def run_definitions(module: ast.Module, names: list[str], namespace: dict[str, Any]) -> dict[str, Any]:
    """The namespace with the definitions of `names` in it."""
    body: list[ast.stmt] = [definition(module, name) for name in names]
    exec(compile(ast.Module(body, []), "<package>", "exec"), namespace)
    return namespace


def parameters(module: ast.Module, class_name: str, method: str) -> list[str]:
    """The names of a method's parameters but `self`."""
    function = next(n for n in definition(module, class_name).body if getattr(n, "name", None) == method)
    return [argument.arg for argument in [*function.args.args, *function.args.kwonlyargs][1:]]
