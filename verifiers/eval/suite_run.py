"""`SuiteRun`: the evaluations of a file, checked all together, then run one after the other, into one table."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import time
import traceback
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from verifiers.errors import ConfigError, ResultsError, SetupError, one_line
from verifiers.eval import prepare, wording
from verifiers.eval.config import EvalConfig
from verifiers.eval.display import Place
from verifiers.eval.endpoints import ModelChoice, choose_model
from verifiers.eval.evaluate import Evaluation, Part, guarded, say
from verifiers.eval.interrupts import INTERRUPTED, sigterm_interrupts
from verifiers.eval.preflight import check_model
from verifiers.eval.report import DONE, FAILED, SET_UP, Outcome
from verifiers.eval.suite import Suite, entry_of, find_suite, varied
from verifiers.eval.suite_table import Row, render_suite, reward_text
from verifiers.eval.summary import failed_share
from verifiers.loading import env_info
from verifiers.redaction import Redactor
from verifiers.run_metadata import METADATA, read_metadata

GRAVEST_FIRST = (INTERRUPTED, SET_UP, FAILED)


def run_suite(configs: Sequence[EvalConfig], *, source: Path, argv: Sequence[str]) -> int:
    """Runs the evaluations of the file `source`, prints one table, and returns the exit code of the worst of them."""
    redactor = Redactor([secret for config in configs for secret in _secrets(config)])
    try:
        suite = _opened(configs, source, argv, redactor)
        with suite, sigterm_interrupts(), contextlib.redirect_stdout(sys.stderr):  # stdout is for the result
            run = SuiteRun(configs, suite, argv, redactor)
            run.execute()
    except ConfigError as error:
        say(f"error: {error}")
        return 2
    except SetupError as error:  # the suite's own folder
        say(f"error: {error}")
        if configs[0].json:
            print(json.dumps({"error": str(error), "exit_code": SET_UP}))
        return SET_UP
    except KeyboardInterrupt:
        say("interrupted before the first evaluation: nothing was run")
        return INTERRUPTED
    rows = run.rows()
    if configs[0].json:
        print(json.dumps(_document(rows, suite, run.code), indent=2, ensure_ascii=False))
    else:
        width = _terminal_width()
        print(render_suite(rows, suite.folder, width), flush=True)
    run.say_how_to_go_on(redactor.text(prepare.resume_command(argv, None)))
    return run.code


class SuiteRun:
    """The steps of a suite: what is finished already, the checks, the evaluations."""

    def __init__(self, configs: Sequence[EvalConfig], suite: Suite, argv: Sequence[str], redactor: Redactor) -> None:
        self.configs, self.suite = configs, suite
        self.outcomes: list[Outcome | None] = [None] * len(configs)  # None: not started
        self.is_interrupted = False
        self._arguments = varied(configs, redactor)
        began, count = time.monotonic(), len(configs)
        self._evaluations = [
            Evaluation(
                config,
                argv,
                Part(Place(index + 1, count, began), suite.run_folder(index), partial(suite.begin, index)),
            )
            for index, config in enumerate(configs)
        ]

    @property
    def code(self) -> int:
        codes = [outcome.code for outcome in self.outcomes if outcome]
        codes += [INTERRUPTED] if self.is_interrupted else []
        return next((code for code in GRAVEST_FIRST if code in codes), DONE)

    def execute(self) -> None:
        """Fills `outcomes`. Ctrl-C ends it with what there is."""
        for note in self.suite.notes:
            say(f"note: {note}")
        for flag in dict.fromkeys(flag for config in self.configs for flag in config.without_effect):
            say(f"note: {flag} has no effect here")
        try:
            self._take_finished()
            if self._left():
                self._check()
            for index in self._left():
                if self._run(index).code == INTERRUPTED:
                    self.is_interrupted = True
                    return
        except KeyboardInterrupt:  # between two evaluations
            self.is_interrupted = True

    def rows(self) -> list[Row]:
        return [self._row(index) for index in range(len(self.configs))]

    def say_how_to_go_on(self, again: str) -> None:
        ended = sum(outcome is not None and outcome.code in (DONE, FAILED) for outcome in self.outcomes)
        if self.is_interrupted:
            say(f"interrupted: {ended} of {len(self.configs)} evaluations are finished. Go on with: {again}")
        elif ended < len(self.configs) or any(_may_go_better(outcome) for outcome in self.outcomes):
            say(f"Run what is missing or failed with: {again}")

    def _row(self, index: int) -> Row:
        config, outcome = self.configs[index], self.outcomes[index]
        folder = self.suite.run_folder(index)
        folder = folder if folder is not None and folder.exists() else None
        found = outcome.metadata if outcome else {}
        if not found and folder:  # not its turn yet, or it could not go on today
            found = _saved_summary(folder) or {}
        return Row(
            number=index + 1,
            env=config.env_id,
            model=found.get("model") or config.model or config.endpoint_id or "",
            arguments=self._arguments[index],
            outcome=outcome,
            found=found,
            folder=folder,
        )

    def _left(self) -> list[int]:
        return [index for index, outcome in enumerate(self.outcomes) if outcome is None]

    def _take_finished(self) -> None:
        for index, config in enumerate(self.configs):
            folder = self.suite.run_folder(index)
            if folder is not None and self.suite.asks_the_same(index):
                self.outcomes[index] = _finished(config, folder)
        n = len(self.configs) - len(self._left())
        if n:
            rest = "; the others follow" if self._left() else ": nothing to run"
            say(f"{n} of {len(self.configs)} evaluations are finished{rest}")

    def _check(self) -> None:
        """Says everything that keeps an evaluation from starting before any of them costs something."""
        checks = _Checks()
        left = self._left()
        say(f"checking {len(left)} evaluations before the first" if len(left) > 1 else "checking the evaluation")
        for index in left:
            evaluation = self._evaluations[index]
            try:
                checks.check(evaluation)
            except Exception as error:
                outcome = self.outcomes[index] = _not_run(evaluation, error)
                evaluation.say(
                    f"error: evaluation {index + 1} of {len(self.configs)}, {self._row(index).name}: {outcome.error}"
                )
        failed = len(left) - len(self._left())
        if failed and self._left():
            say(f"{failed} of {len(left)} cannot start. The others run now; once mended, --resume runs what is missing")

    def _run(self, index: int) -> Outcome:
        evaluation, row = self._evaluations[index], self._row(index)
        where = f"{index + 1} of {len(self.configs)}"
        evaluation.say(f"── {where}: {row.name}")
        try:
            outcome = guarded(evaluation)
        except Exception as error:  # an environment that breaks outside of its rollouts does not stop the others
            outcome = _not_run(evaluation, error)
            evaluation.say(f"error: {outcome.error}")
        self.outcomes[index] = outcome
        if found := outcome.metadata:
            scored = f"{found['n_scored']} of {found['n_total']} scored"
            evaluation.say(f"   {where}: reward {reward_text(found)} · {scored} · {wording.seconds(found['time_s'])}")
        if evaluation.config.verbose and outcome.table:
            evaluation.say(outcome.table)
        return outcome


class _Checks:
    """What can be found wrong before a request is paid; the same server, or environment and arguments, only once."""

    def __init__(self) -> None:
        self._models: list[tuple[ModelChoice, Exception | None]] = []
        self._environments: list[tuple[tuple[Any, ...], Exception | None]] = []

    def check(self, evaluation: Evaluation) -> None:
        """Key, server, model; then that the environment can be made with its arguments, and has a row."""
        choice = evaluation.chosen()
        _once(self._models, choice, lambda: asyncio.run(check_model(choice)))
        config = evaluation.config
        asked = config.env_id, config.env_args, config.extra_env_kwargs, config.independent_scoring
        _once(self._environments, asked, lambda: _make_and_close(evaluation))


def _once(known: list[tuple[Any, Exception | None]], key: Any, action: Any) -> None:
    error = next((error for other, error in known if other == key), _UNKNOWN)
    if error is _UNKNOWN:
        try:
            action()
            error = None
        except Exception as raised:
            error = raised
        known.append((key, error))
    if error is not None:
        raise error


_UNKNOWN = Exception()


def _make_and_close(evaluation: Evaluation) -> None:
    env, _ = prepare.load(evaluation.config, evaluation.say)
    try:
        env.eval_rows(1)
    finally:
        asyncio.run(env.teardown())


def _opened(configs: Sequence[EvalConfig], source: Path, argv: Sequence[str], redactor: Redactor) -> Suite:
    paths = {config.resume_path for config in configs}
    if len(paths) > 1:
        raise ConfigError(
            f"{source}: resume_path in one of several evaluations. --resume goes on with all of them; "
            "--resume-path takes the folder of the suite"
        )
    places = {config.output_dir for config in configs}
    base = Path((places.pop() if len(places) == 1 else None) or "outputs")
    entries = [entry_of(config, redactor) for config in configs]
    found = next(iter(paths))
    folder = Path(found) if found else None
    if folder is None and any(config.resume for config in configs):
        folder = find_suite(source, base)
        if folder is None:
            say(f"note: {source} was not run before: starting a new suite")
    if folder is not None:
        say(f"going on with {folder}")
        return Suite.resume(folder, entries)
    return Suite.create(source, base, entries, [redactor.text(word) for word in argv])


def _secrets(config: EvalConfig) -> list[str]:
    with contextlib.suppress(SetupError):  # said when it is the evaluation's turn
        return [*prepare.secrets_of(config), *choose_model(config).secrets]
    return [*prepare.secrets_of(config), *config.headers.values()]


def _finished(config: EvalConfig, folder: Path) -> Outcome | None:
    """What a run came to that leaves nothing to do; `None` if it has to go on, or might be another one today."""
    metadata = _saved_summary(folder)
    if metadata is None:
        return None
    saved, info = read_metadata(folder), env_info(config.env_id)
    is_whole = saved.status == "done" and not saved.counts.get("failed")
    is_same_env = (saved.env.owner, saved.env.name, saved.env.version) == (info.owner, info.name, info.version)
    if not (is_whole and is_same_env and _is_same_model(config, saved.model)):
        return None
    return Outcome(FAILED if failed_share(metadata) > config.max_failed else DONE, metadata)


def _saved_summary(folder: Path) -> dict[str, Any] | None:
    """The metadata of a run that has its summary: one that was killed has none."""
    try:
        read_metadata(folder)
        metadata: dict[str, Any] = msgspec.json.decode((folder / METADATA).read_bytes())
    except (OSError, ResultsError):
        return None
    return metadata if "n_total" in metadata else None


def _is_same_model(config: EvalConfig, saved: str) -> bool:
    try:
        choice = choose_model(config)
    except SetupError:  # no key today: none is needed for what is finished
        return config.model == saved
    return choice.is_local or choice.model == saved


def _not_run(evaluation: Evaluation, error: Exception) -> Outcome:
    if evaluation.config.debug:
        traceback.print_exception(error)
    text = str(error) if isinstance(error, SetupError) else one_line(error)
    return Outcome(SET_UP, error=evaluation.redactor.text(text))


def _may_go_better(outcome: Outcome | None) -> bool:
    return outcome is not None and bool(outcome.metadata.get("counts", {}).get("failed"))


def _document(rows: Sequence[Row], suite: Suite, code: int) -> dict[str, Any]:
    return {"suite": str(suite.folder), "exit_code": code, "evals": [_as_json(row) for row in rows]}


def _as_json(row: Row) -> dict[str, Any]:
    """The metadata of its run, and what only the suite knows."""
    known: dict[str, Any] = {"env_id": row.env, "model": row.model, "status": row.state or "done", **row.found}
    known["varied"] = row.arguments
    known["folder"] = str(row.folder) if row.folder else None
    known["exit_code"] = row.outcome.code if row.outcome else None
    error = row.outcome.error if row.outcome else row.state
    return {**known, "error": error} if error else known


def _terminal_width() -> int | None:
    """Of the terminal that standard output is; `None` if it is none."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns if sys.stdout.isatty() else None
    except (OSError, ValueError):
        return None
