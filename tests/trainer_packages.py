"""Trainers' packages, installed without their engines, for tests that hold an adapter against them.

Looked for beside the interpreter, and in the folder of packages that VF_TEST_TRAINERS names; there they must be.
Single definitions are run out of a file, because the file itself needs CUDA, Ray and more before its first class.
"""

from __future__ import annotations

import ast
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest


def folder_of(package: str) -> Path:
    """The folder of packages that it lies in. Skips the test when there is none."""
    named = os.environ.get("VF_TEST_TRAINERS")
    if named and (Path(named) / package).is_dir():
        return Path(named).resolve()
    spec = find_spec(package)
    if spec and spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations))).parent
    wanted = "uv pip install --no-deps -r requirements/contracts.txt, or trl.txt"
    if named:
        pytest.fail(f"no {package} in VF_TEST_TRAINERS={named}; {wanted}")
    pytest.skip(f"needs the package {package}, and VF_TEST_TRAINERS to name its folder; {wanted}")


def source_of(package: str, path: str) -> ast.Module:
    """A module of the package, parsed. Skips the test when there is none."""
    return ast.parse((folder_of(package) / package / path).read_text("utf-8"))


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
