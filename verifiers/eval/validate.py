"""`validate`: does an environment pay right answers, and only them? Asked with scripted replies, without a model."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from verifiers.errors import EnvironmentFault, EnvironmentLoadError, one_line
from verifiers.eval import replies, row_checks, wording
from verifiers.eval.check import Check
from verifiers.eval.declared import Declared, declared_of
from verifiers.eval.offline import watched
from verifiers.eval.progress import failures_of
from verifiers.install import ensure_installed
from verifiers.loading import env_info, load_environment
from verifiers.parsers.parser import content_text
from verifiers.records import RolloutRecord, Score, decode_record, encode_record

if TYPE_CHECKING:
    from verifiers.envs.environment import Environment

MOST_REPLIES = 200  # of one rollout: an environment that waits for a sensible one would never end
ROLLOUT_S = 60.0
OTHER_ROWS_S = 3.0
EXACT = 1e-6
OUTSIDE = ("judge", "sandbox")  # sides whose failure says nothing about the environment's own rewards


@dataclass(slots=True)
class Validation:
    """All checks of one environment, in order."""

    env_id: str
    version: str | None
    checks: list[Check] = field(default_factory=list)

    @property
    def is_ok(self) -> bool:
        return all(check.status != "failed" for check in self.checks)

    @property
    def as_json(self) -> dict[str, Any]:
        checks = [{"name": c.name, "status": c.status, "reason": c.reason} for c in self.checks]
        return {"env": self.env_id, "version": self.version, "ok": self.is_ok, "checks": checks}


def validate(
    env_id: str,
    env_args: dict[str, Any] | None = None,
    *,
    num_examples: int = 10,
    env_dir_path: str = "./environments",
    say: Callable[[str], None] = lambda line: None,
) -> Validation:
    """Runs every check. Raises SetupError when there is no such environment, a key is missing, or the declaration errs.

    What the environment prints goes to standard error, and it gets no network unless its package declares some.
    """
    ensure_installed(env_id, env_dir_path, say)
    declared = declared_of(env_id)
    validation = Validation(env_id, env_info(env_id).version)
    logger = logging.getLogger("verifiers")
    level = logger.level
    with contextlib.redirect_stdout(sys.stderr), watched(refuse=not declared.network) as watch:
        logger.setLevel(logging.ERROR)  # scripted replies provoke what is warned of
        try:
            env = load_environment(env_id, **(env_args or {}))
            policy = declared.policy()
        except EnvironmentLoadError as error:
            validation.checks.append(Check("loads", "failed", one_line(error, 400)))
        else:
            validation.checks.append(Check("loads", "ok"))
            checker = Checker(env, declared, policy, num_examples)
            validation.checks += checker.row_checks(env_id, env_args or {})
            if checker.rows:
                validation.checks += asyncio.run(checker.reward_checks())
        finally:
            logger.setLevel(level)
    validation.checks.append(_network_check(declared, list(watch.hosts)))
    return validation


def _network_check(declared: Declared, hosts: list[str]) -> Check:
    asked = wording.cut(", ".join(hosts), 200)
    if declared.network:
        return Check("network", "ok", f"declared; asked for {asked}" if hosts else "declared; nothing was asked for")
    if hosts:
        return Check("network", "failed", f"asked for {asked}, refused: declare network = true, or do without")
    return Check("network", "ok", "none was asked for")


class Checker:
    """An environment, its rows, and the records of what was played on it."""

    def __init__(
        self, env: Environment, declared: Declared, policy: Callable[..., Any] | None, num_examples: int
    ) -> None:
        self.env, self.declared, self.policy, self.num_examples = env, declared, policy, num_examples
        self.splits: dict[str, list[dict[str, Any]]] = {}
        self.records: list[RolloutRecord] = []
        self.form: replies.Form | None = None
        self.paid: dict[int, float] = {}  # example_id → what its answer, once, was paid

    @property
    def rows(self) -> list[dict[str, Any]]:
        return next((rows for kind in ("eval", "train") if (rows := self.splits.get(kind, []))), [])

    @property
    def played_rows(self) -> list[dict[str, Any]]:
        return self.rows[: self.num_examples]

    def row_checks(self, env_id: str, env_args: dict[str, Any]) -> list[Check]:
        try:
            self.splits = row_checks.rows_of(self.env)
        except Exception as error:
            return [Check("rows", "failed", f"building them raised {one_line(error, 300)}")]
        if not self.rows:
            return [Check("rows", "failed", "there are none")]
        return [
            row_checks.well_formed(self.splits),
            row_checks.same_again(self.splits, env_id, env_args, self.declared.network),
            row_checks.answers_there(self.splits),
            row_checks.answers_hidden(self.rows, self.env.tool_defs or [], self.declared),
        ]

    async def reward_checks(self) -> list[Check]:
        try:
            checks = [await self._reference()]
            for name, make in self._cheats().items():
                checks.append(await self._pays_little(name, make))
            checks.append(await self._part_paid())
            if self.env.tool_defs:
                checks.append(await self._told_by_tools())
            checks.append(await self._repeated_right())
            checks.append(await self._other_rows())
            checks.append(await self._repeats())
            checks.append(self._sound())
            return checks
        finally:
            await self.env.teardown()

    def _cheats(self) -> dict[str, Callable[[dict[str, Any]], list[str]]]:
        def wrong(row: dict[str, Any]) -> list[str]:
            return [self._written(replies.other_answer(row, self.rows))]

        with_answers: dict[str, Callable[[dict[str, Any]], list[str]]] = {
            "wrong answer": wrong,
            "wrong answer repeated": lambda row: ["\n".join(wrong(row) * replies.REPEATS)],
            "wrong answer padded": lambda row: [replies.padded(wrong(row)[0])],
            "draft in thinking": lambda row: replies.drafts(row, self.rows, self._written),
            "answer cut off": lambda row: replies.cut_off(row, self._written),
            "hedged answer": lambda row: replies.hedges(row, self.rows, self._written),
            "options listed": lambda row: replies.listings(row, self.rows, self._written),
        }
        alone: dict[str, Callable[[dict[str, Any]], list[str]]] = {
            "empty answer": lambda row: ["", " ", "I don't know."],
            "nothing said": replies.empty_talk,
            "prompt echoed": replies.echoes,
        }
        if any(replies.answer_text(row) for row in self.rows):
            return alone | with_answers
        return alone

    def _written(self, answer: str) -> str:
        return self.form(answer) if self.form else answer

    async def _played(self, row: dict[str, Any], reply: Callable[..., Any] | str) -> RolloutRecord:
        """One rollout in which every turn of the model is `reply`, or what it returns for the messages so far."""
        from verifiers.clients.scripted import ScriptedClient
        from verifiers.run import Run

        asked = 0

        def answer(request: Any) -> Any:
            nonlocal asked
            asked += 1
            if asked > MOST_REPLIES:
                raise EnvironmentFault(f"the rollout did not end within {MOST_REPLIES} replies")
            return reply if isinstance(reply, str) else reply(list(request.messages), row)

        client = ScriptedClient(answer, message_type=self.env.message_type)
        run = Run(self.env, [row], client=client, model="validation", rollout_timeout_s=ROLLOUT_S)
        records = await run.execute()
        if run.fatal is not None:
            raise run.fatal
        (record,) = records
        self.records.append(record)
        return record

    async def _reference(self) -> Check:
        rows = [row for row in self.played_rows if replies.answer_text(row)]
        how = f"by {self.declared.reference}"
        if rows:
            name, self.form = await self.best_form(rows)
            how = how if self.policy else f"answers written as {name}"
        elif self.policy is None:
            reason = 'rows have no answer; declare reference = "module:function" for a policy that plays well'
            return Check("reference", "not applicable", reason)
        for row in self.played_rows if self.policy else rows:
            paid = await self._right_paid("reference", row, how)
            if isinstance(paid, Check):
                return paid
            self.paid[row["example_id"]] = paid
        least = min(self.paid.values())
        return Check("reference", "ok", f"at least {least:g} on {len(self.paid)} examples, {how}")

    async def _right_paid(self, name: str, row: dict[str, Any], how: str) -> float | Check:
        """What the right answer is paid, which is all there is; else the check that failed."""
        record = await self._played(row, self.policy or self._written(replies.answer_text(row)))
        wanted = full_reward(record.scores)
        if self.declared.reference_reward is not None:
            wanted = self.declared.reference_reward
        if record.reward is None:
            return self._unscored(name, record, f"{how}, ")
        if wanted == 0 and self.declared.reference_reward is None:
            return Check(name, "failed", "no reward function has a positive weight: nothing can be learned")
        if record.reward < wanted - EXACT:
            reason = f"example {row['example_id']} got {record.reward:g} of {wanted:g} ({how}: {_scores(record)})"
            return Check(name, "failed", reason)
        return record.reward

    async def _other_rows(self) -> Check:
        """The rest of the rows, in an order drawn once: one broken reference among hundreds spoils only its own row."""
        name, began = "other rows", time.monotonic()
        if not self.paid:
            return Check(name, "not applicable", "no right answer was paid")
        if any(score.judge for record in self.records for score in record.scores):
            return Check(name, "not applicable", "a judge is asked, which costs")
        played = {id(row) for row in self.played_rows}
        rows = [row for rows in self.splits.values() for row in rows if id(row) not in played]
        rows = [row for row in rows if self.policy or replies.answer_text(row)]
        random.Random(0).shuffle(rows)
        for looked, row in enumerate(rows):
            if time.monotonic() - began > OTHER_ROWS_S:
                return Check(name, "ok", f"{looked} of {len(rows)}, as many as {OTHER_ROWS_S:g} s allow")
            paid = await self._right_paid(name, row, "the right answer")
            if isinstance(paid, Check):
                return paid
            if failed := await self._decoys_paid(name, row):
                return failed
        return Check(name, "ok", f"all {len(rows)}" if rows else "all were played before")

    async def _decoys_paid(self, name: str, row: dict[str, Any]) -> Check | None:
        """Two wrong answers: one alone may be the right one in other words; what takes anything pays for both."""
        check = None
        for decoy in replies.decoys(row, self.rows):
            written = self._written(decoy)
            check = await self._pays_little(name, lambda _, written=written: [written], [row])
            if check.status != "failed":
                return None
        return check

    async def _part_paid(self) -> Check:
        """Half of the right answer is paid less: it is not where `in` or `startswith` stand the wrong way round."""
        name = "part of an answer"
        rows = [row for row in self.played_rows if row["example_id"] in self.paid and replies.part_of(row)]
        if not rows:
            return Check(name, "not applicable", "no answer has a part that is clearly another answer")
        for row in rows:
            part = replies.part_of(row)
            record = await self._played(row, self._written(part))
            if record.reward is not None and record.reward > self.paid[row["example_id"]] - EXACT:
                told = f"example {row['example_id']}: '{wording.cut(part, 40)}' is paid {record.reward:g}, as"
                return Check(name, "failed", f"{told} '{wording.cut(replies.answer_text(row), 40)}' is")
        return Check(name, "ok", "the first half is paid less than the whole")

    async def _told_by_tools(self) -> Check:
        """Calls each tool that wants no argument, as a model would, and looks for the answer in what it returns."""
        name = "answer in tools"
        tools = [tool.name for tool in self.env.tool_defs or () if not tool.parameters.get("required")]
        rows = [row for row in self.played_rows if len(replies.answer_text(row)) >= replies.SHORTEST_LEAK]
        if not tools or not rows:
            return Check(name, "not applicable", "no tool can be called without arguments, or no answer be looked for")
        for row in rows:
            record = await self._played(row, replies.calling(tools))
            for message in record.messages:
                text = content_text(message.get("content")) if message.get("role") == "tool" else ""
                if replies.stands_in(replies.answer_text(row), text):
                    told = f"example {row['example_id']}: a tool returns '{wording.cut(text, 60)}'"
                    if self.declared.answer_in_context:
                        return Check(name, "ok", f"{told}, declared: {self.declared.answer_in_context}")
                    return Check(name, "failed", f"{told}; declare answer_in_context with the reason")
        return Check(name, "ok", f"not in what {wording.cut(', '.join(tools), 100)} return")

    async def best_form(self, rows: Sequence[dict[str, Any]]) -> tuple[str, replies.Form]:
        """The form in which right answers are paid best; the first of equals."""
        best: tuple[float, str, replies.Form] | None = None
        for name, form in replies.forms_of(self.env.parser).items():
            played = [await self._played(row, form(replies.answer_text(row))) for row in rows[: replies.ROWS_TO_CHOOSE]]
            paid = sum(-1.0 if record.reward is None else record.reward for record in played)
            if best is None or paid > best[0] + EXACT:
                best = paid, name, form
        assert best is not None
        return best[1], best[2]

    def _unscored(self, name: str, record: RolloutRecord, how: str = "") -> Check:
        failures = failures_of(record)
        told = "; ".join(f"{kind}: {message}" for _, kind, message in failures) or f"status {record.status}"
        text = f"{how}example {record.example_id} was not scored: {wording.cut(told, 300)}"
        outside = bool(failures) and all(side in OUTSIDE for side, _, _ in failures)
        return Check(name, "not applicable" if outside else "failed", text)

    async def _pays_little(
        self, name: str, make: Callable[[dict[str, Any]], list[str]], rows: list[dict[str, Any]] | None = None
    ) -> Check:
        most, limit = -float("inf"), self.declared.floor or 0.0
        for row in self.played_rows if rows is None else rows:
            for text in make(row):
                record = await self._played(row, text)
                if record.reward is None:
                    if any(side != "model" for side, _, _ in failures_of(record)):
                        return self._unscored(name, record)
                    continue
                value, what = self._main(record)
                if value > limit + EXACT:
                    shown = wording.cut(text, 80)
                    reason = (
                        f"example {row['example_id']}: {what} {value:g}, at most {limit:g} may be paid, for '{shown}'"
                    )
                    return Check(name, "failed", reason)
                most = max(most, value)
        if most == -float("inf"):
            return Check(name, "not applicable", "there is nothing to play, or nothing that is paid")
        return Check(name, "ok", f"at most {most:g}")

    def _main(self, record: RolloutRecord) -> tuple[float, str]:
        """What the floor is held against: the reward, or without a declared floor the functions that weigh most."""
        heaviest = max((score.weight for score in record.scores), default=0.0)
        if self.declared.floor is not None or heaviest <= 0:
            return record.reward or 0.0, "reward"
        main = [score for score in record.scores if score.weight == heaviest]
        return max((score.value or 0.0, score.name) for score in main)

    async def _repeated_right(self) -> Check:
        name = "right answer repeated"
        rows = [row for row in self.played_rows if row["example_id"] in self.paid and replies.answer_text(row)]
        if not rows or self.policy:
            return Check(name, "not applicable", "no answer was written once before")
        for row in rows:
            record = await self._played(row, "\n".join([self._written(replies.answer_text(row))] * replies.REPEATS))
            once = self.paid[row["example_id"]]
            if record.reward is not None and record.reward > once + EXACT:
                reason = (
                    f"example {row['example_id']}: {record.reward:g} for {replies.REPEATS} copies, {once:g} for one"
                )
                return Check(name, "failed", reason)
        return Check(name, "ok", f"{replies.REPEATS} copies are paid no more than one")

    async def _repeats(self) -> Check:
        """The same reply on the same row is paid the same."""
        row = self.played_rows[0]
        text = self._written(replies.answer_text(row)) if replies.answer_text(row) else "I don't know."
        first, second = [(await self._played(row, self.policy or text)).reward for _ in range(2)]
        before = self.paid.get(row["example_id"], first)  # what was played in between must not have moved it
        if first == second and (first is None or before is None or abs(first - before) <= EXACT):
            return Check("same reward", "ok", "the same reply was paid the same twice, also after the others")
        told = f"{first} and {second}" if first != second else f"{before} before the other replies and {first} after"
        return Check("same reward", "failed", f"the same reply on example {row['example_id']} got {told}")

    def _sound(self) -> Check:
        for record in self.records:
            faults = [f"{s.name}: {s.reason}" for s in record.scores if s.status == "fault" and s.side not in OUTSIDE]
            if faults:
                return Check("rewards", "failed", f"example {record.example_id}: {wording.cut(faults[0], 300)}")
            low, high = self.declared.reward_range or range_of(record.scores)
            if record.reward is not None and not low - EXACT <= record.reward <= high + EXACT:
                reason = f"example {record.example_id} got {record.reward:g}, outside {low:g} to {high:g}"
                return Check("rewards", "failed", f"{reason}: declare reward_range, or mend the weights")
            try:
                decode_record(encode_record(record))
            except Exception as error:
                return Check("rewards", "failed", f"a record cannot be written: {one_line(error, 300)}")
        return Check("rewards", "ok", f"{len(self.records)} rollouts: finite, in range, written as JSON")


def full_reward(scores: Sequence[Score]) -> float:
    return sum(score.weight for score in scores if score.weight > 0)


def range_of(scores: Sequence[Score]) -> tuple[float, float]:
    """The least and the most reward when every function gives 0 to 1."""
    return sum(score.weight for score in scores if score.weight < 0), full_reward(scores)


def _scores(record: RolloutRecord) -> str:
    weighing = [score for score in record.scores if score.weight]
    return wording.cut(", ".join(f"{score.name} {wording.number(score.value)}" for score in weighing), 200)
