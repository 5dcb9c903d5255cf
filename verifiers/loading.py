"""`load_environment`: from an environment's id to the object, each way it can fail told in one line."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import inspect
import os
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from verifiers.errors import EnvironmentLoadError, EnvironmentNotFound, MissingKeyError, one_line
from verifiers.installed import (
    EvalDefaults,
    InstalledEnv,
    env_info,
    eval_defaults,
    find_installed,
    installed_environments,
    is_same_version,
    owner_of,
)
from verifiers.records import content_hash
from verifiers.refs import EnvRef, near

if TYPE_CHECKING:
    from verifiers.envs.environment import Environment

__all__ = [
    "EvalDefaults",
    "InstalledEnv",
    "ensure_keys",
    "env_args_hash",
    "env_info",
    "eval_defaults",
    "find_installed",
    "installed_environments",
    "load_environment",
    "not_found",
]

ENVIRONMENTS = "./environments"


def load_environment(env_id: str, **env_args: Any) -> Environment:
    """Imports the module that `env_id` names and calls its `load_environment(**env_args)`.

    Raises EnvironmentNotFound when there is no such module, EnvironmentLoadError when it is another package's, raises
    or returns something else, and MissingKeyError as the environment raised it.

    >>> load_environment("no-such-environment")
    Traceback (most recent call last):
        ...
    verifiers.errors.EnvironmentNotFound: no environment 'no-such-environment' ...
    """
    ref = EnvRef.parse(env_id)
    _check_version(ref)
    module = _import(ref)
    factory = _factory(ref, module)
    _check_arguments(ref, factory, env_args)
    env = _call(ref, module, factory, env_args)
    _check_result(ref, env)
    if not getattr(env, "env_id", None):
        env.env_id = ref.id
    if not getattr(env, "env_args", None):
        env.env_args = dict(env_args)
    return env


def ensure_keys(keys: Sequence[str]) -> None:
    """Raises MissingKeyError unless every named environment variable is set and not empty."""
    missing = [key for key in keys if not os.environ.get(key)]
    if missing:
        raise MissingKeyError(missing)


def env_args_hash(env_args: Mapping[str, Any]) -> str:
    """16 hex digits, equal for equal arguments."""
    return content_hash(dict(env_args))


def not_found(ref: EnvRef, folder: str | Path = ENVIRONMENTS) -> EnvironmentNotFound:
    """The error for an environment that is nowhere: what there is, and the command to run next."""
    local = local_environments(folder)
    if ref.module in local:
        place = local[ref.module]
        return EnvironmentNotFound(f"environment '{ref.id}' is in {place} but not installed. Try: vf-install {place}")
    installed = [env.name for env in installed_environments()]
    similar = near(ref.name, [*installed, *(place.name.replace("_", "-") for place in local.values())])
    there = f"installed: {', '.join(installed)}" if installed else "none is installed"
    hint = f"Did you mean {' or '.join(similar)}? Else try" if similar else "Try"
    return EnvironmentNotFound(f"no environment '{ref.id}' ({there}). {hint}: vf-install {ref}")


def local_environments(folder: str | Path = ENVIRONMENTS) -> dict[str, Path]:
    """Module name → source folder, for each folder with a pyproject.toml in `folder`."""
    places = sorted(Path(folder).glob("*/pyproject.toml"))
    return {file.parent.name.replace("-", "_"): file.parent for file in places}


def _check_version(ref: EnvRef) -> None:
    if ref.version is None:
        return
    env = find_installed(ref.id)
    if env is not None and not is_same_version(ref.version, env.version):
        raise EnvironmentLoadError(
            f"{ref} was asked for, but {env.name} {env.version} is installed. "
            f"Try: vf-install {ref}, or leave out @{ref.version}"
        )
    if env is None and importlib.util.find_spec(ref.module) is not None:
        raise EnvironmentLoadError(
            f"{ref} was asked for, but the module '{ref.module}' here has no version. Drop @{ref.version}"
        )


def _import(ref: EnvRef) -> ModuleType:
    if ref.module not in sys.modules:
        spec = importlib.util.find_spec(ref.module)
        # a folder without __init__.py is found as a namespace package: `environments/gsm8k` seen from `environments`
        if spec is None or spec.origin is None:
            raise not_found(ref)
    try:
        return importlib.import_module(ref.module)
    except MissingKeyError:
        raise
    except ImportError as error:
        raise _missing_dependency(ref, error) from error
    except (Exception, SystemExit) as error:
        raise EnvironmentLoadError(f"importing environment '{ref.id}' failed: {_told(error, ref.module)}") from error


def _missing_dependency(ref: EnvRef, error: ImportError) -> EnvironmentLoadError:
    place = _author_line(error, ref.module)
    if error.name and error.name.split(".")[0] == "verifiers":
        return EnvironmentLoadError(f"environment '{ref.id}' asks for what verifiers does not have: {error} ({place})")
    if isinstance(error, ModuleNotFoundError) and error.name:
        package = error.name.split(".")[0]
        return EnvironmentLoadError(
            f"environment '{ref.id}' needs the module '{error.name}', which is not installed ({place}). "
            f"Try: uv pip install {package.replace('_', '-')}, and add it to the dependencies of {ref.name}"
        )
    return EnvironmentLoadError(f"importing environment '{ref.id}' failed: {_told(error, ref.module)}")


def _factory(ref: EnvRef, module: ModuleType) -> Callable[..., Any]:
    factory = getattr(module, "load_environment", None)
    if callable(factory):
        return factory
    file = getattr(module, "__file__", None)
    found = f"module '{ref.module}' was imported from {file or 'a folder without __init__.py'}"
    owner = owner_of(Path(file)) if file else None
    env = find_installed(ref.id)
    if owner and (env is None or owner != f"{env.name} {env.version}"):
        raise EnvironmentLoadError(
            f"no environment '{ref.id}': {found}, which belongs to the package {owner} and has no load_environment. "
            "The names collide: rename the environment or uninstall that package"
        )
    raise EnvironmentLoadError(f"{found}, and it has no load_environment(**args) that returns the environment")


def _check_arguments(ref: EnvRef, factory: Callable[..., Any], env_args: Mapping[str, Any]) -> None:
    try:
        parameters = inspect.signature(factory).parameters
    except (TypeError, ValueError):  # a callable without a signature: calling it will tell
        return
    by_name = {n: p for n, p in parameters.items() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    takes = "It takes: " + (", ".join(str(parameter) for parameter in by_name.values()) or "nothing")
    if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        for name in env_args:
            if name not in by_name:
                similar = near(name, by_name, limit=1)
                hint = f"; did you mean '{similar[0]}'?" if similar else "."
                raise EnvironmentLoadError(f"environment '{ref.id}' has no argument '{name}'{hint} {takes}")
    missing = [n for n, p in by_name.items() if p.default is p.empty and n not in env_args]
    if missing:
        raise EnvironmentLoadError(f"environment '{ref.id}' needs the argument '{missing[0]}'. {takes}")


def _call(ref: EnvRef, module: ModuleType, factory: Callable[..., Any], env_args: Mapping[str, Any]) -> Any:
    try:
        env = factory(**env_args)
        return _finish(env) if inspect.iscoroutine(env) else env
    except MissingKeyError:
        raise
    except ModuleNotFoundError as error:
        raise _missing_dependency(ref, error) from error
    except (Exception, SystemExit) as error:
        raise EnvironmentLoadError(f"load_environment of '{ref.id}' raised {_told(error, module.__name__)}") from error


def _finish(coroutine: Any) -> Any:
    """Runs an async load_environment to its end; beside a running loop it gets a thread with a loop of its own."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    outcome: dict[str, Any] = {}

    def run() -> None:
        try:
            outcome["value"] = asyncio.run(coroutine)
        except BaseException as error:
            outcome["error"] = error

    thread = threading.Thread(target=run, name="load_environment")
    thread.start()
    thread.join()
    if "error" in outcome:
        raise outcome["error"]
    return outcome["value"]


def _check_result(ref: EnvRef, env: Any) -> None:
    if callable(getattr(env, "rollout", None)) and callable(getattr(env, "evaluate", None)):
        return
    what = "nothing: is a `return` missing?" if env is None else f"a {type(env).__name__}, not an Environment"
    raise EnvironmentLoadError(f"load_environment of '{ref.id}' returned {what}")


def _told(error: BaseException, module: str) -> str:
    return f"{one_line(error)} ({_author_line(error, module)})"


def _author_line(error: BaseException, module: str) -> str:
    """`file:line` of the innermost frame in the environment's own code, else of where the error was raised."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    file = _file_of(module)
    own = [frame for frame in frames if file and _belongs(Path(frame.filename), file)]
    frame = (own or frames or [None])[-1]
    return f"{frame.filename}:{frame.lineno}" if frame else f"module {module}"


def _belongs(file: Path, module_file: Path) -> bool:
    """Whether `file` is the module's, or one of its package's. A single module may lie in site-packages itself."""
    return file == module_file or (module_file.name == "__init__.py" and module_file.parent in file.parents)


def _file_of(module: str) -> Path | None:
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    return Path(spec.origin) if spec and spec.origin else None
