"""One evaluation from its `EvalConfig` to the saved run, the table and the exit code."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verifiers.errors import SetupError
from verifiers.eval import hub_dataset, prepare
from verifiers.eval.budget import Budget
from verifiers.eval.config import EvalConfig
from verifiers.eval.display import Place, View, can_be_live, shown
from verifiers.eval.endpoints import ModelChoice, choose_model
from verifiers.eval.interrupts import INTERRUPTED, interruptible
from verifiers.eval.preflight import check_model
from verifiers.eval.progress import Progress
from verifiers.eval.report import DONE, FAILED, SET_UP, Outcome, report, title_of
from verifiers.eval.summary import summarise_run
from verifiers.redaction import Redactor

if TYPE_CHECKING:
    from verifiers.clients.client import Client
    from verifiers.envs.environment import Environment
    from verifiers.executor.request import RolloutExecutor
    from verifiers.records import RolloutRecord
    from verifiers.results import ResultsStore, RunConfig
    from verifiers.run import Run

LEAVE_S = 2.0  # what a second Ctrl-C still grants to writing the metadata


def run_evaluation(config: EvalConfig, *, argv: Sequence[str]) -> int:
    """Runs it, prints what it amounts to, and returns the exit code."""
    # standard output is for the result; what authors print is not part of it
    with contextlib.redirect_stdout(sys.stderr):
        outcome = guarded(Evaluation(config, argv))
    if config.json:
        print(json.dumps(outcome.as_json, indent=2, ensure_ascii=False))
    elif outcome.table:
        print(outcome.table, flush=True)
    return outcome.code


@dataclass(frozen=True)
class Part:
    """What an evaluation knows of the suite that it is a part of."""

    place: Place
    folder: Path | None  # of its run, if that was begun earlier
    begin: Callable[[Path], None]  # called with the folder of a new run, before it is made


def say(text: str) -> None:
    """For people: standard error. That nobody reads it any more is no reason to stop working."""
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def guarded(evaluation: Evaluation) -> Outcome:
    """What stops an evaluation before it starts becomes a line and an exit code."""
    try:
        return evaluation.execute()
    except SetupError as error:
        if evaluation.config.debug:
            traceback.print_exc()
        evaluation.say(f"error: {error}")
        return Outcome(SET_UP, error=evaluation.redactor.text(str(error)))
    except KeyboardInterrupt:  # before or after the run, which has its own way to stop
        text = evaluation.interrupted()
        evaluation.say(text)
        return Outcome(INTERRUPTED, error=text.splitlines()[0])


class Evaluation:
    """The steps of one evaluation: the model, the environment, the folder, the run, the summary."""

    def __init__(self, config: EvalConfig, argv: Sequence[str], part: Part | None = None) -> None:
        self.config, self.argv, self.part = config, list(argv), part
        self.secrets = prepare.secrets_of(config)
        self.redactor = Redactor(self.secrets)
        self.folder: Path | None = None  # of the run, once there is one

    def interrupted(self) -> str:
        """What is said of a Ctrl-C that came while no rollout was running."""
        if self.part is not None:  # the suite says how to go on
            return "interrupted"
        if self.folder is None:
            return "interrupted before the first rollout: nothing was run"
        return f"interrupted: what has finished is saved. Go on with:\n  {self._again(self.folder)}"

    def say(self, text: str) -> None:
        say(self.redactor.text(text))

    def execute(self) -> Outcome:
        for flag in self.config.without_effect if self.part is None else ():  # a suite says it once
            self.say(f"note: {flag} has no effect here")
        choice = self.chosen()
        choice, warnings = asyncio.run(check_model(choice))
        for note in [*choice.notes, *warnings]:
            self.say(f"note: {note}")
        env, self.config = prepare.load(self.config, self.say)
        if choice.is_local:
            self.config = prepare.with_short_replies(self.config, env, self.say)
        self.config = prepare.with_tokens(self.config, choice, self.say)
        with prepare.served(choice) as choice:
            outcome = asyncio.run(self._run(env, choice))
        if self.config.push and self.folder is not None and outcome.code in (DONE, FAILED):
            return self._pushed_to_hub(outcome, self.folder)
        return outcome

    def chosen(self) -> ModelChoice:
        """The model, before anything is asked of a server; from here on its keys are kept out of what is said."""
        choice = choose_model(self.config)
        self.secrets += choice.secrets
        if self.config.push:
            from verifiers.hub.account import who_am_i
            from verifiers.hub.credentials import current_login

            login = current_login()
            who_am_i(login)  # raises when we are not signed in: better now than after the run
            self.secrets += [login.token] if login.token else []
        self.redactor = Redactor(self.secrets)
        prepare.set_up_logging(self.config, self.redactor.text)
        if self.config.save_to_hf_hub:
            hub_dataset.check_token()
        return choice

    async def _run(self, env: Environment, choice: ModelChoice) -> Outcome:
        from verifiers.clients import ScriptedClient, as_client

        try:
            # A run of right answers never asks a server.
            client = as_client(choice.endpoint or ScriptedClient(""), message_type=env.message_type)
            try:
                return await self._run_with(env, client, choice)
            finally:
                await client.close()
        finally:
            await env.teardown()

    async def _run_with(self, env: Environment, client: Client, choice: ModelChoice) -> Outcome:
        config = self.config
        rows = env.eval_rows(config.num_examples or -1)
        run_config, origin = prepare.described(config, env, rows, choice, self.argv)
        title = title_of(config, run_config)
        place = self.part.place if self.part else None
        with self._open_store(run_config) as store:
            self.folder = store.folder
            earlier_s = prepare.seconds_before(store)
            progress = Progress(ungraded_alarm=config.ungraded_alarm)
            progress.add_earlier(store.finished)
            budget = Budget(config, has_prices=choice.prices is not None)
            async with prepare.executor_of(config) as executor:

                def on_record(record: RolloutRecord) -> None:
                    progress.add(record)
                    if budget.spent is None and budget.add(record):
                        run.start_no_more()

                kept: dict[str, Any] = {"store": store, "origin": origin, "on_record": on_record}
                run = await self._new_run(env, rows, choice, executor, client=client, model=run_config.model, **kept)
                records = await self._watched(run, store, View(title, run, progress, client.status, place), budget)
            summary = summarise_run(
                records,
                total=run.total,
                time_s=earlier_s + progress.seconds,
                pass_threshold=env.pass_threshold,
                ungraded_alarm=config.ungraded_alarm,
            )
            store.finish(summary, status="failed" if run.fatal is not None else None)
            for note in store.notes:
                self.say(f"note: {note}")
        metadata = prepare.saved_metadata(store, summary, self.redactor)
        again = None if self.part else self._again(store.folder)
        outcome = report(run, store.folder, metadata, choice, config, title, again, self.say, budget.spent)
        return self._pushed(outcome, store.folder, run_config) if config.save_to_hf_hub and records else outcome

    async def _new_run(
        self,
        env: Environment,
        rows: Sequence[Any],
        choice: ModelChoice,
        executor: RolloutExecutor | None,
        **options: Any,
    ) -> Run:
        from verifiers.executor.run import ExecutedRun
        from verifiers.run import Run

        config = self.config
        options |= {
            "rollouts_per_example": config.rollouts_per_example,
            "sampling_args": config.sampling,
            "max_concurrent": config.max_concurrent,
            "max_retries": config.max_retries,
            "seed": config.seed,
            "independent_scoring": config.independent_scoring,
            "rollout_timeout_s": config.timeout_s,
            "state_columns": config.state_columns,
        }
        if choice.is_reference:
            from verifiers.eval.reference import ReferenceRun, reference_policy

            return ReferenceRun(env, rows, policy=await reference_policy(env, config.env_id), **options)
        if executor is None:
            return Run(env, rows, **options)
        assert choice.endpoint is not None, "the model is served by now"
        spec = prepare.spec_of(config)
        return ExecutedRun(env, rows, executor=executor, spec=spec, endpoint=choice.endpoint, **options)

    def _pushed(self, outcome: Outcome, folder: Path, run_config: RunConfig) -> Outcome:
        name = self.config.hf_hub_dataset_name or f"{run_config.env.name}-evals"
        try:
            hub_dataset.push(folder, name)
        except SetupError as error:  # the run itself is worth showing
            self.say(f"error: {error}")
            return replace(outcome, code=max(outcome.code, SET_UP))
        self.say(f"pushed to the Hugging Face hub: {name}")
        return outcome

    def _pushed_to_hub(self, outcome: Outcome, folder: Path) -> Outcome:
        from verifiers.hub.client import HubClient
        from verifiers.hub.push import push

        environment = self.config.env_id if "/" in self.config.env_id else None
        try:
            with HubClient() as client:
                done = push(client, folder, environment=environment)
        except SetupError as error:
            self.say(f"error: the run is saved, but was not pushed: {error}. Try: vf push-results {folder}")
            return replace(outcome, code=max(outcome.code, SET_UP))
        self.say(f"pushed to the hub: {done.url}")
        return outcome

    def _again(self, folder: Path) -> str:
        return self.redactor.text(prepare.resume_command(self.argv, None if self.part else folder))

    def _open_store(self, run_config: RunConfig) -> ResultsStore:
        from verifiers.results import ResultsStore, default_folder, find_resumable

        config = self.config
        place = run_config.env.name, run_config.model
        kept: dict[str, Any] = {"secrets": self.secrets, "save_tokens": config.save_tokens}
        if self.part is not None:
            return self._open_part(self.part, run_config, kept)
        found = Path(config.resume_path) if config.resume_path else None
        if config.resume and found is None:
            found = find_resumable(*place, run_config, config.output_dir, secrets=self.secrets)
            if found is None:
                self.say("note: no unfinished run like this one was found: starting a new one")
        if found is None:
            return ResultsStore.create(default_folder(*place, config.output_dir), run_config, **kept)
        store = ResultsStore.resume(found, run_config, **kept)
        self.say(f"going on with {found}: {len(store.finished)} of {run_config.total} rollouts are there")
        return store

    def _open_part(self, part: Part, run_config: RunConfig, kept: dict[str, Any]) -> ResultsStore:
        """The run that the suite names; a new one where that is of another configuration, which is said."""
        from verifiers.results import DifferentRun, ResultsStore, default_folder
        from verifiers.run_metadata import METADATA

        found = part.folder
        if found is not None and (found / METADATA).exists():  # else it was killed while it was made
            try:
                store = ResultsStore.resume(found, run_config, **kept)
            except DifferentRun as error:
                self.say(f"note: starting a new run, because {found} is another one: {'; '.join(error.differences)}")
            else:
                self.say(f"going on with {found}: {len(store.finished)} of {run_config.total} rollouts are there")
                return store
        folder = default_folder(run_config.env.name, run_config.model, self.config.output_dir)
        part.begin(folder)
        return ResultsStore.create(folder, run_config, **kept)

    def _stop(self, run: Run) -> None:
        run.stop()
        self.say("stopping; what has finished is saved. Ctrl-C again leaves at once")

    async def _watched(self, run: Run, store: ResultsStore, view: View, budget: Budget) -> list[RolloutRecord]:
        """The run with its display, open to Ctrl-C, and stopped when its time is up."""
        config = self.config
        loop = asyncio.get_running_loop()
        live = can_be_live() and not config.debug

        def stop() -> None:
            loop.call_soon_threadsafe(self._stop, run)

        def leave() -> None:
            text = f"left at once. Go on with:\n  {self._again(store.folder)}\n"
            cursor = "\x1b[?25h" if live else ""  # the live display had hidden it
            with contextlib.suppress(OSError):
                os.write(2, f"{cursor}\n{text}".encode())  # print may be what was interrupted
            # in a thread: the interrupted code may hold what closing waits for
            closing = threading.Thread(target=store.close, daemon=True)
            closing.start()
            closing.join(LEAVE_S)
            os._exit(INTERRUPTED)

        def out_of_time() -> None:
            budget.run_out_of_time()
            run.stop()

        timer = None if budget.limit_s is None else loop.call_later(budget.limit_s, out_of_time)
        try:
            with interruptible(stop, leave):
                async with shown(view, live=live, redact=self.redactor.text):
                    return await run.execute()
        finally:
            if timer is not None:
                timer.cancel()
