"""Rollouts that somebody watches: `play`, in which a person answers, `debug`, in which a model does, and `replay`."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import msgspec

from verifiers.errors import ConfigError, ResultsError, SetupError, one_line
from verifiers.eval import prepare
from verifiers.eval.config import EvalConfig
from verifiers.eval.endpoints import ModelChoice, choose_model
from verifiers.eval.evaluate import say
from verifiers.eval.interrupts import INTERRUPTED
from verifiers.eval.person import Person
from verifiers.eval.preflight import check_model
from verifiers.eval.report import DONE, FAILED, SET_UP
from verifiers.eval.summary import summarise_run
from verifiers.eval.transcript import ShownClient, Transcript
from verifiers.redaction import Redactor

if TYPE_CHECKING:
    from verifiers.envs.environment import Environment
    from verifiers.records import RolloutRecord

HUMAN = "human"


def play(config: EvalConfig, argv: Sequence[str], *, example: int | None = None) -> int:
    """A person answers in the terminal and is scored like a model; saved as an evaluation of the model "human"."""
    with _own_output() as out, _interrupts_at_once():
        env, config = prepare.load(msgspec.structs.replace(config, rollouts_per_example=1), say)
        rows = [row_of(env, example)] if example is not None else env.eval_rows(config.num_examples or 1)
        try:
            return asyncio.run(_play(env, config, rows, argv, Transcript(out)))
        except KeyboardInterrupt:
            say("\ninterrupted: what had been finished is saved")
            return INTERRUPTED


async def _play(
    env: Environment, config: EvalConfig, rows: Sequence[Any], argv: Sequence[str], transcript: Transcript
) -> int:
    from verifiers.results import ResultsStore, default_folder
    from verifiers.run import Run

    described, origin = prepare.described(config, env, rows, ModelChoice(HUMAN), argv)
    described = msgspec.structs.replace(described, base_url="")
    folder = default_folder(described.env.name, HUMAN, config.output_dir)
    records: list[RolloutRecord] = []
    try:
        with ResultsStore.create(folder, described, secrets=prepare.secrets_of(config)) as store:
            for row in rows:  # one by one: a person sees how one went before the next
                person = Person(transcript, sys.stdin, message_type=env.message_type)
                run = Run(env, [row], client=person, model=HUMAN, seed=config.seed, origin=origin)
                person.on_end = run.stop
                transcript.begin(f"{described.env.name}, example {row['example_id']}")
                finished = await run.execute()
                for record in finished:
                    store.append(record)
                    transcript.result(record)
                records += finished
                if run.stopped:
                    break
            seconds = sum(record.timing.total_s for record in records)
            store.finish(summarise_run(records, total=len(rows), time_s=seconds, pass_threshold=env.pass_threshold))
    finally:
        await env.teardown()
    say(f"saved in {folder}")
    if len(records) < len(rows):
        say(f"left after {len(records)} of {len(rows)} examples")
        return INTERRUPTED
    return DONE if all(record.reward is not None for record in records) else FAILED


def debug(config: EvalConfig, *, example: int, attempt: int) -> int:
    """One rollout of a model, every message as it comes. Nothing is saved."""
    with _own_output() as out:
        choice = choose_model(config)
        redactor = Redactor(prepare.secrets_of(config) + choice.secrets)
        prepare.set_up_logging(config, redactor.text)
        choice, warnings = asyncio.run(check_model(choice))
        for note in [*choice.notes, *warnings]:
            say(redactor.text(f"note: {note}"))
        env, config = prepare.load(config, say)
        row = row_of(env, example)
        if choice.is_local:
            config = prepare.with_short_replies(config, env, say)
        with prepare.served(choice) as choice:
            try:
                return asyncio.run(_debug(env, config, row, choice, attempt, Transcript(out, redactor.text)))
            except KeyboardInterrupt:
                say("interrupted")
                return INTERRUPTED


async def _debug(
    env: Environment, config: EvalConfig, row: Any, choice: ModelChoice, attempt: int, transcript: Transcript
) -> int:
    from verifiers.clients import as_client
    from verifiers.run import Run

    run_config, origin = prepare.described(config, env, [row], choice, [])
    client = as_client(choice.endpoint, message_type=env.message_type)
    try:
        run = Run(
            env,
            [row],
            client=ShownClient(client, transcript),
            model=run_config.model,
            sampling_args=config.sampling,
            seed=config.seed,
            origin=origin,
            rollout_timeout_s=config.timeout_s,
            first_try=attempt,
        )
        transcript.begin(f"{run_config.env.name}, example {row['example_id']}, try {attempt}, {run_config.model}")
        records = await run.execute()
    finally:
        await client.close()
        await env.teardown()
    if run.fatal is not None:
        if isinstance(run.fatal, SetupError):
            raise run.fatal
        say(f"error: {one_line(run.fatal)}")
        return SET_UP
    for record in records:
        transcript.result(record)
    return DONE if records and records[0].reward is not None else FAILED


def replay(folder: str, *, example: int | None, attempt: int | None, out: TextIO) -> int:
    """Shows a saved rollout and its scores; no model and no environment is needed."""
    from verifiers.results import load_results

    records = load_results(Path(folder))
    if not records:
        raise ResultsError(f"{folder} holds no finished rollout yet")
    found = [r for r in records if example in (None, r.example_id) and attempt in (None, r.rollout_index)]
    if not found:
        wanted = f"example {example}" + ("" if attempt is None else f", try {attempt}")
        examples = sorted({record.example_id for record in records})
        shown = ", ".join(map(str, examples[:20])) + (" …" if len(examples) > 20 else "")
        raise ResultsError(f"{folder} has no {wanted}. It has {len(records)} rollouts, of the examples {shown}")
    record = found[0]
    transcript = Transcript(out)
    transcript.begin(f"{record.env.name}, example {record.example_id}, try {record.rollout_index}, {record.model.name}")
    transcript.result(record)
    if len(found) > 1:
        say(f"the first of {len(found)} rollouts; choose another by --example and --try")
    return DONE


def row_of(env: Environment, example: int) -> Any:
    """The evaluation row of this `example_id`. Raises ConfigError saying which there are."""
    for rows in (env.eval_rows(example + 1), env.eval_rows()):  # most often it is the row of that number
        for row in reversed(rows):
            if row["example_id"] == example:
                return row
    ids = [row["example_id"] for row in env.eval_rows()]
    raise ConfigError(f"no example {example}: the evaluation rows are {min(ids)} to {max(ids)} (--example)")


@contextlib.contextmanager
def _own_output() -> Iterator[TextIO]:
    """Standard output for the transcript alone; what authors print goes to standard error."""
    out = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):
        yield out


@contextlib.contextmanager
def _interrupts_at_once() -> Iterator[None]:
    """Ctrl-C while a line is read: asyncio's own handler would wait for the read to end."""

    def handle(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
