"""`EvalConfig`: everything one evaluation was asked for. Flags beat a TOML file, which beats the defaults here."""

from __future__ import annotations

import itertools
import json
import math
import os
import shlex
import tomllib
from pathlib import Path
from typing import Any

import msgspec

from verifiers.errors import ConfigError
from verifiers.executor import ExecutorName
from verifiers.refs import near

DEFAULT_EXAMPLES = 5
DEFAULT_ROLLOUTS = 3


class EvalConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One evaluation. `None` means that nobody said; what then holds is written beside the field."""

    env_id: str
    env_args: dict[str, Any] = {}
    env_dir_path: str = "./environments"
    extra_env_kwargs: dict[str, Any] = {}
    endpoints_path: str | None = None  # ./configs/endpoints.toml, if there is one
    endpoint_id: str | None = None
    provider: str | None = None
    model: str | None = None
    api_client_type: str | None = None
    api_key_var: str | None = None
    api_base_url: str | None = None
    headers: dict[str, str] = {}
    num_examples: int | None = None  # what the environment's package says, else 5
    rollouts_per_example: int | None = None  # the same, else 3
    max_concurrent: int = 32
    max_tokens: int | None = None
    temperature: float | None = None
    sampling_args: dict[str, Any] = {}
    seed: int = 0
    timeout_s: float | None = None
    max_retries: int = 0
    max_failed: float = 0.0
    max_cost: float | None = None  # of this command; in the currency of the prices
    max_total_tokens: int | None = None  # of this command, prompts and replies together
    time_limit: float | None = None  # seconds of this command
    ungraded_alarm: float = 0.05  # share of the last rollouts that could not be graded
    independent_scoring: bool = False
    state_columns: list[str] = []
    output_dir: str | None = None
    resume: bool = False
    resume_path: str | None = None
    save_tokens: bool = False
    push: bool = False
    yes: bool = False
    executor: ExecutorName = "local"  # another runs the environment in workers
    num_workers: int | str | None = None  # of them; None and "auto": one a core
    save_to_hf_hub: bool = False
    hf_hub_dataset_name: str | None = None
    verbose: bool = False
    debug: bool = False
    tui: bool = False
    abbreviated_summary: bool = False
    json: bool = False
    # Accepted for older command lines and files: results are always saved, a rollout is scored as soon as it can be,
    # and there is no environment server.
    no_interleave_scoring: bool = False
    save_results: bool = True
    disable_env_server: bool = False
    heartbeat_url: str | None = None

    @property
    def sampling(self) -> dict[str, Any]:
        """What every request carries; the flags of their own beat `sampling_args`."""
        own = {"max_tokens": self.max_tokens, "temperature": self.temperature}
        return {**self.sampling_args, **{key: value for key, value in own.items() if value is not None}}

    @property
    def workers(self) -> int | None:
        return self.num_workers if isinstance(self.num_workers, int) else None

    @property
    def without_effect(self) -> list[str]:
        """Flags that were given and change nothing here."""
        given = {
            "--num-workers": self.num_workers is not None and self.executor == "local",
            "--heartbeat-url": self.heartbeat_url is not None,
            "--disable-env-server": self.disable_env_server,
            "--no-interleave-scoring": self.no_interleave_scoring,
        }
        return [flag for flag, is_given in given.items() if is_given]


FILE_NAMES = {"timeout": "timeout_s", "header": "headers"}  # spellings of the flags that a file may use
KEYS = (set(EvalConfig.__struct_fields__) | set(FILE_NAMES)) - {"timeout_s"}


def configs_of(target: str, given: dict[str, Any]) -> list[EvalConfig]:
    """The evaluations that `target`, an environment id or a TOML file, and the flags `given` ask for.

    Raises ConfigError naming the key, its nearest known one, or the value that does not fit.
    """
    if not target.endswith(".toml"):
        return [_build({**given, "env_id": target}, "command line")]
    path = Path(target).expanduser()
    return [_build({**entry, **given}, target) for entry in _file_entries(path)]


def _build(values: dict[str, Any], source: str) -> EvalConfig:
    try:
        config = msgspec.convert(values, EvalConfig)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{source}: {_spoken(error)}") from None
    for name in ("max_concurrent", "num_examples", "rollouts_per_example"):
        _check_count(source, name, getattr(config, name), unlimited=name != "rollouts_per_example")
    for name in ("max_cost", "max_total_tokens", "time_limit"):
        value = getattr(config, name)
        if value is not None and not 0 < value < math.inf:
            raise ConfigError(f"{source}: {name} must be above 0, got {value:g}")
    for name in ("max_failed", "ungraded_alarm"):
        if not 0 <= getattr(config, name) <= 1:
            raise ConfigError(f"{source}: {name} is a share between 0 and 1, got {getattr(config, name):g}")
    if isinstance(config.num_workers, str) and config.num_workers != "auto":
        raise ConfigError(f"{source}: num_workers is a count or 'auto', got '{config.num_workers}'")
    if config.workers is not None and config.workers < 1:
        raise ConfigError(f"{source}: num_workers must be 1 or more, got {config.workers}")
    if config.timeout_s is not None and config.timeout_s <= 0:
        raise ConfigError(f"{source}: timeout is in seconds and above 0, got {config.timeout_s:g}")
    return config


def _check_count(source: str, name: str, value: int | None, *, unlimited: bool) -> None:
    if value is None or value > 0 or (unlimited and value == -1):
        return
    every = ", or -1 for no limit" if unlimited else ""
    raise ConfigError(f"{source}: {name} must be 1 or more{every}; got {value}")


def _spoken(error: msgspec.ValidationError) -> str:
    """msgspec's "Expected `int`, got `str` - at `$.num_examples`", with the key first."""
    text, _, place = str(error).partition(" - at ")
    key = place.strip("`").removeprefix("$.")
    return f"{key}: {text}" if key else text


# The TOML file


def _file_entries(path: Path) -> list[dict[str, Any]]:
    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"no file {path}. An environment is named without .toml: vf-eval math-env") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None
    evals, ablations = document.pop("eval", []), document.pop("ablation", [])
    shared = _known_keys(document, f"{path}", extra=("eval", "ablation"))
    entries = [{**shared, **_known_keys(table, f"{path}, [[eval]] {n}")} for n, table in _tables(path, "eval", evals)]
    for n, table in _tables(path, "ablation", ablations):
        entries += [{**shared, **entry} for entry in _swept(table, f"{path}, [[ablation]] {n}")]
    if not entries:
        raise ConfigError(f'{path} asks for nothing. Add a table:\n  [[eval]]\n  env_id = "math-env"')
    for entry in entries:
        if not entry.get("env_id"):
            raise ConfigError(f"{path}: every [[eval]] needs an env_id")
        if "endpoints_path" in entry:  # relative to the file that names it
            entry["endpoints_path"] = os.path.join(path.parent, os.path.expanduser(str(entry["endpoints_path"])))
    return entries


def _tables(path: Path, name: str, value: Any) -> list[tuple[int, dict[str, Any]]]:
    if not isinstance(value, list) or not all(isinstance(table, dict) for table in value):
        raise ConfigError(f"{path}: '{name}' must be written as tables, [[{name}]]")
    return list(enumerate(value, 1))


def _known_keys(table: dict[str, Any], source: str, extra: tuple[str, ...] = ()) -> dict[str, Any]:
    known: dict[str, Any] = {}
    for key, value in table.items():
        if key not in KEYS:
            close = near(key, [*KEYS, *extra])
            hint = f" Did you mean '{close[0]}'?" if close else f" Known: {', '.join(sorted(KEYS))}"
            raise ConfigError(f"{source}: unknown key '{key}'.{hint}")
        known[FILE_NAMES.get(key, key)] = parse_headers(value, source) if key in ("header", "headers") else value
    return known


def _swept(table: dict[str, Any], source: str) -> list[dict[str, Any]]:
    """One entry for each combination of the lists in `[ablation.sweep]`."""
    table = dict(table)
    sweep = dict(table.pop("sweep", {}))
    fixed = _known_keys(table, source)
    args = sweep.pop("env_args", {})
    axes = [((key,), values) for key, values in _known_keys(sweep, f"{source} sweep").items()]
    axes += [(("env_args", key), values) for key, values in args.items()]
    for key, values in axes:
        if not isinstance(values, list) or not values:
            raise ConfigError(f"{source}: sweep of '{'.'.join(key)}' must be a list of values, got {values!r}")
    entries = []
    for choice in itertools.product(*(values for _, values in axes)):
        entry = {**fixed, "env_args": dict(fixed.get("env_args", {}))}
        for (key, _), value in zip(axes, choice, strict=True):
            if len(key) == 2:
                entry["env_args"][key[1]] = value
            else:
                entry[key[0]] = value
        entries.append(entry)
    return entries


# Values of flags


def parse_env_args(texts: list[str], flag: str = "-a") -> dict[str, Any]:
    """Arguments from JSON objects and `key=value` pairs; the values of pairs are JSON where they can be, else text.

    >>> parse_env_args(['{"difficulty": 2}', "split=test", "seed=3"])
    {'difficulty': 2, 'split': 'test', 'seed': 3}
    """
    args: dict[str, Any] = {}
    for text in texts:
        stripped = text.strip()
        if stripped.startswith("{") or "=" not in stripped:
            args.update(parse_object(text, flag, pairs=True))
        else:
            args.update(_parse_pairs(stripped, flag))
    return args


def _parse_pairs(text: str, flag: str) -> dict[str, Any]:
    key, _, rest = text.partition("=")
    words = [text]
    if " " in rest and not rest.lstrip().startswith(("{", "[", '"')):
        try:
            split = shlex.split(text)
        except ValueError:
            split = [text]
        if all("=" in word for word in split):  # "a=1 b=2" in one flag; else the spaces belong to the value
            words = split
    pairs = {}
    for word in words:
        key, _, value = word.partition("=")
        if not key.strip().isidentifier():
            raise ConfigError(f"{flag}: '{key}' is no argument name. {_hint(flag, pairs=True)}")
        try:
            pairs[key.strip()] = json.loads(value)
        except ValueError:
            pairs[key.strip()] = value
    return pairs


def parse_object(text: str, flag: str, *, pairs: bool = False) -> dict[str, Any]:
    """A JSON object. Raises ConfigError that shows where the text goes wrong."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{flag} is not JSON: {error.msg}. {_hint(flag, pairs)}\n{_caret(text, error.pos)}") from None
    if not isinstance(value, dict):
        raise ConfigError(f"{flag} must be a JSON object, got {text.strip()[:60]}. {_hint(flag, pairs)}")
    return value


def _caret(text: str, position: int) -> str:
    """The line of `text` around `position`, at most 70 characters of it, and a caret below."""
    start = text.rfind("\n", 0, position) + 1
    end = text.find("\n", position)
    line, column = text[start : len(text) if end < 0 else end], position - start
    cut = max(0, column - 50)
    line = line[cut : cut + 70].expandtabs(1)
    return f"  {line}\n  {' ' * (column - cut)}^"


def _hint(flag: str, pairs: bool) -> str:
    example = f"""Quote it for the shell: {flag} '{{"name": "value"}}'"""
    return f"{example}, or write {flag} name=value" if pairs else example


def parse_headers(value: Any, source: str = "--header") -> dict[str, str]:
    """`Name: value` texts, one or several, or a table of them. A bad one is named without its value."""
    if isinstance(value, dict):
        return {str(name): str(text) for name, text in value.items()}
    headers = {}
    for line in [value] if isinstance(value, str) else value:
        name, colon, text = str(line).partition(":")
        if not colon or not name.strip():
            raise ConfigError(f"{source}: a header is written 'Name: value', got no colon in '{name[:12]}…'")
        headers[name.strip()] = text.strip()
    return headers
