"""`vf-eval --rescore RUN`: a saved run under the rubric of today, as a run of its own. No model is asked again."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from verifiers.errors import ConfigError, SetupError
from verifiers.eval import prepare
from verifiers.eval.compare import RunComparison
from verifiers.eval.config import EvalConfig
from verifiers.eval.display import View, can_be_live, shown
from verifiers.eval.endpoints import ModelChoice
from verifiers.eval.evaluate import say
from verifiers.eval.progress import Progress
from verifiers.eval.report import DONE, FAILED, SET_UP
from verifiers.eval.score_again import row_for, rows_of, score_again
from verifiers.eval.summary import failed_share, render, summarise_run
from verifiers.records import RolloutRecord
from verifiers.redaction import Redactor
from verifiers.run_metadata import read_metadata
from verifiers.viewer.runs import run_at

if TYPE_CHECKING:
    from verifiers.envs.environment import Environment
    from verifiers.results import ResultsStore

Group = tuple[list[RolloutRecord], dict[str, Any]]  # the tries of an example, its row


def rescore(run: Path, given: dict[str, Any], argv: Sequence[str]) -> int:
    """Scores `run` again and prints what changed. `given` are flags, of which `env_args` go over those of the run.

    The old run stays as it is. Rollouts that failed are taken over as they are. Returns the exit code.
    """
    try:
        return asyncio.run(_Rescoring(run, given, argv).execute())
    except SetupError as error:
        say(f"error: {error}")
        return SET_UP


class _Rescoring:
    """Also what the display shows: how many rollouts there are, are done, and are being scored."""

    def __init__(self, run: Path, given: dict[str, Any], argv: Sequence[str]) -> None:
        self.old, self.argv = run_at(run), argv
        self.records = self.old.records()
        self.saved = read_metadata(self.old.path.parent)
        own: dict[str, Any] = {
            "env_id": self.saved.env_id,
            "env_args": self.saved.env_args,
            "model": self.saved.model,
            "sampling_args": self.saved.sampling_args,
            "rollouts_per_example": self.saved.rollouts_per_example,
            "num_examples": self.saved.num_examples,
            "seed": self.saved.seed or 0,
            "state_columns": self.saved.state_columns,
        }
        self.config = msgspec.convert({**own, **given}, EvalConfig)
        self.total, self.in_flight = len(self.records), 0
        self.done = 0

    @property
    def waiting(self) -> dict[str, int]:
        return {"scoring": self.in_flight}

    async def execute(self) -> int:
        from verifiers.results import ResultsStore, default_folder

        env, config = prepare.load(self.config, say)
        secrets = prepare.secrets_of(config)
        prepare.set_up_logging(config, Redactor(secrets).text)
        try:
            groups = self._groups(env)
            rows = [row for _, row in groups]
            described, _ = prepare.described(config, env, rows, ModelChoice(self.saved.model), self.argv)
            described = msgspec.structs.replace(described, base_url=self.saved.base_url)
            folder = default_folder(described.env.name, described.model, config.output_dir)
            with ResultsStore.create(folder, described, secrets=secrets) as store:
                made = await self._scored(env, groups, store)
                kept = [*made, *self._taken_over(store)]
                kept.sort(key=lambda record: record.key)
                summary = summarise_run(
                    kept, total=described.total, time_s=self.saved.time, pass_threshold=env.pass_threshold
                )
                store.finish({**summary, "rescored_from": str(self.old.path.parent)})
        finally:
            await env.teardown()
        self._report(summary, folder)
        return FAILED if failed_share(summary) > config.max_failed else DONE

    def _groups(self, env: Environment) -> list[Group]:
        """Raises ConfigError when the environment does not have the rows that were answered."""
        splits = rows_of(env)
        found: list[Group] = []
        for example_id, tries in groupby(self.records, key=lambda record: record.example_id):
            answered = list(tries)
            row = row_for(answered[0], splits)
            if row is None:
                raise ConfigError(
                    f"{self.saved.env_id} has no example {example_id} with the prompt that was answered: its rows have "
                    "changed since, or other arguments (-a) are needed"
                )
            found.append((answered, row))
        return found

    async def _scored(self, env: Environment, groups: Sequence[Group], store: ResultsStore) -> list[RolloutRecord]:
        progress, made = Progress(), list[RolloutRecord]()
        room = asyncio.Semaphore(self.config.max_concurrent if self.config.max_concurrent > 0 else len(groups))

        async def one(tries: list[RolloutRecord], row: dict[str, Any]) -> None:
            async with room:
                self.in_flight += len(tries)
                try:
                    for record in await score_again(env, tries, row, with_state=True):
                        store.append(record)
                        progress.add(record)
                        made.append(record)
                finally:
                    self.in_flight -= len(tries)
                    self.done += len(tries)

        title = f"{self.saved.env_id} \u00b7 {self.saved.model} \u00b7 scored again"
        async with shown(View(title, self, progress, lambda: None), live=can_be_live(), redact=str):
            await asyncio.gather(*(one(*group) for group in groups))
        return made

    def _taken_over(self, store: ResultsStore) -> list[RolloutRecord]:
        failed = [record for record in self.records if record.status == "failed"]
        for record in failed:
            store.append(record)
        return failed

    def _report(self, summary: dict[str, Any], folder: Path) -> None:
        comparison = RunComparison(self.old.path, folder)
        if self.config.json:
            document = {**summary, "rescored_from": str(self.old.path.parent), "folder": str(folder)}
            print(json.dumps({**document, "comparison": comparison.as_json()}, ensure_ascii=False))
            return
        width = shutil.get_terminal_size((120, 24)).columns
        title = f"{self.saved.env_id} \u00b7 {self.saved.model} \u00b7 scored again"
        print(render(summary, title=title, width=max(80, width)))
        print("\n" + "\n".join(comparison.lines(10, width)))
        print(f"\nsaved          {folder}")
