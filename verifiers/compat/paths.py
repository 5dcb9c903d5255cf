"""Old import paths: every module that a classic release had can be imported, with the names that it had.

`import verifiers` puts one finder on `sys.meta_path`; that is its only effect. A module of `OLD` is built when it is
first imported, and each of its names found when it is first touched: where it lives now (`HOMES`), among the public
names, or else as one that raises `NotHere` on use. Where there is still a module of that path, the names it lost are
added to those it has. `verifiers.legacy.…`, as 0.3 spells them, are the same modules again. `prime_sandboxes`, which
those releases brought along, is answered for where it is not installed.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from verifiers.compat.old_paths import HOMES, HOMES_IN, KNOWN, OLD, SERVICE

LEGACY = "verifiers.legacy"


def install() -> None:
    """Registers the finder, once."""
    if not any(isinstance(finder, OldPaths) for finder in sys.meta_path):
        sys.meta_path.insert(0, OldPaths())


def classic(path: str, name: str) -> Any:
    """What `name` of the old module `path` is now. Raises AttributeError for a name that no module had.

    One that another module had counts: modules of that time imported each other's names, and authors took them from
    wherever they saw them.
    """
    public = sys.modules["verifiers"]
    is_known_elsewhere = path != "verifiers" and (name in KNOWN or name in public.__all__)
    if name not in OLD.get(path, ()) and not is_known_elsewhere:
        raise AttributeError(f"module '{path}' has no name '{name}'")
    home = HOMES_IN.get(path, HOMES).get(name) or HOMES.get(name)
    if home is not None:
        module, _, attribute = home.partition(":")
        return getattr(importlib.import_module(module), attribute or name)
    if name in public.__all__:
        return getattr(public, name)
    from verifiers.compat.not_here import absent

    return absent(name, path)


class OldPaths:
    """Finds the modules of `OLD`, and those under `verifiers.legacy`."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        if not name.startswith("verifiers."):
            if name not in OLD or PathFinder.find_spec(SERVICE) is not None:
                return None
            return _virtual_spec(name, lambda attribute: classic(name, attribute), sorted(OLD[name]), _is_package(name))
        if name == LEGACY or name.startswith(f"{LEGACY}."):
            return _legacy_spec(name)
        if name not in OLD:
            return None
        real = PathFinder.find_spec(name, path)
        if real is not None:
            return _extended(real)
        return _virtual_spec(name, lambda attribute: classic(name, attribute), sorted(OLD[name]), _is_package(name))


def _is_package(path: str) -> bool:
    return any(other.startswith(f"{path}.") for other in OLD)


def _extended(spec: ModuleSpec) -> ModuleSpec:
    """The spec of a module with a file, which gets the names of its old self once it has run."""
    loader: Any = spec.loader
    run = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        run(module)
        _answer(module, lambda name: classic(spec.name, name), module.__dict__.get("__getattr__"))

    loader.exec_module = exec_module  # of this one loader: each module has its own
    return spec


def _has_file(path: str) -> bool:
    """Whether it is a module of today that may be reached by attribute, as `vf.envs.tool_env` was."""
    parent = sys.modules.get(path.rpartition(".")[0])
    return parent is not None and PathFinder.find_spec(path, getattr(parent, "__path__", ())) is not None


def _legacy_spec(name: str) -> ModuleSpec | None:
    from importlib.util import find_spec  # few need it, and it is not cheap

    target = "verifiers" + name.removeprefix(LEGACY)
    found = find_spec(target)
    if found is None:
        return None
    is_package = found.submodule_search_locations is not None
    return _virtual_spec(name, lambda attribute: getattr(importlib.import_module(target), attribute), None, is_package)


def _virtual_spec(name: str, find: Callable[[str], Any], names: list[str] | None, is_package: bool) -> ModuleSpec:
    loader: Any = _Builder(find, names)
    return ModuleSpec(name, loader, origin="verifiers.compat.paths", is_package=is_package)


class _Builder:
    """Loads a module that has no file."""

    def __init__(self, find: Callable[[str], Any], names: list[str] | None) -> None:
        self.find, self.names = find, names

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        if self.names is not None:
            module.__dict__["__all__"] = self.names
        _answer(module, self.find, None)


def _answer(module: ModuleType, find: Callable[[str], Any], own: Callable[[str], Any] | None) -> None:
    """Gives the module a `__getattr__` that asks its own first, keeps what it finds, and knows its submodules."""

    def look_up(name: str) -> Any:
        if own is not None:
            try:
                return own(name)
            except AttributeError:
                pass
        if name.startswith("__"):
            raise AttributeError(name)
        submodule = f"{module.__name__}.{name}"
        value = importlib.import_module(submodule) if submodule in OLD or _has_file(submodule) else find(name)
        module.__dict__[name] = value
        return value

    module.__dict__["__getattr__"] = look_up
