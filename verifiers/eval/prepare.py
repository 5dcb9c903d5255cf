"""What an evaluation needs before its first rollout: the environment, the client, the description that is saved."""

from __future__ import annotations

import logging
import os
import re
import shlex
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from verifiers.clients.endpoint import Endpoint
from verifiers.errors import ConfigError
from verifiers.eval.config import DEFAULT_EXAMPLES, DEFAULT_ROLLOUTS, EvalConfig
from verifiers.eval.endpoints import ModelChoice, is_near
from verifiers.install import ensure_installed
from verifiers.installed import declared
from verifiers.loading import env_args_hash, env_info, eval_defaults, load_environment
from verifiers.records import DataInfo
from verifiers.redaction import Redactor

if TYPE_CHECKING:
    from verifiers.envs.environment import Environment
    from verifiers.executor.request import EnvSpec, RolloutExecutor
    from verifiers.recording import Origin
    from verifiers.results import ResultsStore, RunConfig

Say = Callable[[str], None]

LOCAL_MAX_TOKENS = 256
# Each slot reads the worked examples of a prompt for itself. On two cores 24 rollouts of math-env took 52 s with eight
# slots, the first of them after 36 s; with four 38 s, and the first after 19 s.
LOCAL_SLOTS_PER_CORE = 2

_SECRET_NAME = re.compile(r"(^|_)(API_?KEY|KEY|TOKEN|SECRET|PASSWORD)$", re.IGNORECASE)
_SECRET_LENGTH = 12  # shorter values of variables that nobody declared are too likely to be ordinary words


def secrets_of(config: EvalConfig) -> list[str]:
    """Values of variables whose names say that they are secret: judges and tools of the environment use them."""
    declared = os.environ.get(config.api_key_var, "") if config.api_key_var else ""
    named = [v for k, v in os.environ.items() if _SECRET_NAME.search(k) and len(v) >= _SECRET_LENGTH]
    return [value for value in [declared, *named] if value]


def load(config: EvalConfig, say: Say) -> tuple[Environment, EvalConfig]:
    """The environment, installed if it lies in `env_dir_path` only, and `config` with its two counts filled in."""
    ensure_installed(config.env_id, config.env_dir_path, say, lambda question: config.yes or _confirmed(question))
    env = load_environment(config.env_id, **config.env_args)
    if config.extra_env_kwargs:
        env.set_kwargs(**config.extra_env_kwargs)
    if config.independent_scoring and env.rubric.needs_group:
        raise ConfigError(
            f"-i scores each rollout alone, but {config.env_id} scores the tries of an example together. Drop -i"
        )
    if config.num_examples is None or config.rollouts_per_example is None:
        found = eval_defaults(config.env_id)
        config = msgspec.structs.replace(
            config,
            num_examples=config.num_examples or found.num_examples or DEFAULT_EXAMPLES,
            rollouts_per_example=config.rollouts_per_example or found.rollouts_per_example or DEFAULT_ROLLOUTS,
        )
    return env, config


def _confirmed(question: str) -> bool:
    """Asks a person; where nobody sits at the terminal the answer is no."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def with_short_replies(config: EvalConfig, env: Environment, say: Say) -> EvalConfig:
    """A limit on replies where neither flags nor environment set one: a model this small seldom stops by itself."""
    if {"max_tokens", "max_completion_tokens"} & {*config.sampling, *env.sampling_args}:
        return config
    say(f"note: replies of the model on this machine end after {LOCAL_MAX_TOKENS} tokens; change it by -t")
    return msgspec.structs.replace(config, max_tokens=LOCAL_MAX_TOKENS)


def with_tokens(config: EvalConfig, choice: ModelChoice, say: Say) -> EvalConfig:
    """`--save-tokens` asks the server for them, unless the sampling arguments do already."""
    if not config.save_tokens or "logprobs" in config.sampling:
        return config
    asked: dict[str, Any] = {**config.sampling_args, "logprobs": True}
    host = urlsplit(choice.base_url).hostname or ""
    if choice.is_local or is_near(host):  # vLLM's own argument, which hosted services may refuse as unknown
        asked["extra_body"] = {**(asked.get("extra_body") or {}), "return_token_ids": True}
    say("note: --save-tokens asks the server for log-probabilities and token ids")
    return msgspec.structs.replace(config, sampling_args=asked)


@contextmanager
def served(choice: ModelChoice) -> Iterator[ModelChoice]:
    """`choice` with an address. The model on this machine is fetched, started, and ended with the body."""
    if not choice.is_local:
        yield choice
        return
    from verifiers.clients.local import LocalModel

    with LocalModel(slots=min(8, LOCAL_SLOTS_PER_CORE * (os.cpu_count() or 1))) as local:
        yield replace(choice, model=local.model, endpoint=Endpoint(local.base_url))


def described(
    config: EvalConfig, env: Environment, rows: Sequence[dict[str, Any]], choice: ModelChoice, argv: Sequence[str]
) -> tuple[RunConfig, Origin]:
    """The run as its folder remembers it, and where each of its records comes from."""
    from verifiers.recording import Origin
    from verifiers.results import RunConfig, row_hashes

    info = env_info(config.env_id)
    run_config = RunConfig(
        env_id=config.env_id,
        env=info,
        model=choice.model or "",
        row_hashes=row_hashes(rows),
        env_args=config.env_args,
        base_url=choice.base_url,
        sampling_args=config.sampling,
        rollouts_per_example=config.rollouts_per_example or DEFAULT_ROLLOUTS,
        seed=config.seed,
        state_columns=config.state_columns,
        command=argv,
    )
    data = DataInfo(rows_hash=run_config.rows_hash)
    args_hash = env_args_hash(config.env_args)
    return run_config, Origin(env=info, args_hash=args_hash, data=data, sampling=config.sampling, prices=choice.prices)


@asynccontextmanager
async def executor_of(config: EvalConfig) -> AsyncIterator[RolloutExecutor | None]:
    """Closed with the body. `None` for "local": a run then makes its rollouts itself."""
    if config.executor == "local":
        yield None
        return
    from verifiers.executor import opened

    executor = opened(config.executor, config.workers)
    try:
        yield executor
    finally:
        await executor.close()


def spec_of(config: EvalConfig) -> EnvSpec:
    """How workers make the environment. They are given the variables that it declares and no others."""
    from verifiers.executor.request import EnvSpec

    keys = declared(config.env_id, "required_keys")[1]
    return EnvSpec(
        env_id=config.env_id, env_args=config.env_args, settings=config.extra_env_kwargs, keys=list(keys or ())
    )


def seconds_before(store: ResultsStore) -> float:
    """How long the earlier parts of the run took."""
    from verifiers.run_metadata import read_metadata

    return read_metadata(store.folder).time


def saved_metadata(store: ResultsStore, summary: dict[str, Any], redactor: Redactor) -> dict[str, Any]:
    """What `metadata.json` holds; with the summary, even if the disk had no room for it any more."""
    from verifiers.run_metadata import METADATA, as_json

    saved = msgspec.json.decode((store.folder / METADATA).read_bytes())
    return {**saved, **redactor.value(as_json(summary))}


def resume_command(argv: Sequence[str], folder: Path | None) -> str:
    """The command line `argv`, made to go on with `folder`; without one, with the newest unfinished run."""
    words, skip = [], False
    for word in argv[1:]:
        if skip or word in ("-R", "--resume", "--resume-path") or word.startswith("--resume-path="):
            skip = word == "--resume-path"
            continue
        words.append(word)
    name = Path(argv[0]).name
    program = [sys.executable, argv[0]] if name.endswith(".py") else [name]
    return shlex.join([*program, *words, *(["--resume"] if folder is None else ["--resume-path", str(folder)])])


def set_up_logging(config: EvalConfig, redact: Callable[[str], str]) -> None:
    """Log lines go to stderr without secrets: warnings, more with -v, all with -d; VF_LOG_LEVEL beats these."""
    level = logging.DEBUG if config.debug else logging.INFO if config.verbose else logging.WARNING
    named = os.environ.get("VF_LOG_LEVEL", "").upper()
    level = logging.getLevelNamesMapping().get(named, level)
    handler = _RedactedLines(redact)
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    logger = logging.getLogger("verifiers")
    logger.handlers = [handler]
    logger.setLevel(level)
    logger.propagate = False


class _RedactedLines(logging.Handler):
    """Writes to whatever `sys.stderr` is at the time: the live display puts lines above itself.

    A line that comes again and again is shown once: one broken reward function must not bury the rest.
    """

    def __init__(self, redact: Callable[[str], str]) -> None:
        super().__init__()
        self._redact = redact
        self._seen: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self._redact(self.format(record))
            if line not in self._seen:
                self._seen.add(line)
                print(line, file=sys.stderr, flush=True)
        except Exception:
            self.handleError(record)
