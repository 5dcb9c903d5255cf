"""Re-scoring: an evaluation's saved completions, scored again on the hub by the environment's own rubric.

Only this makes an evaluation *verified*: its figures were recomputed from its samples before, but the rewards in those
were the client's word. Questions and answers come from the released package, the completions from the samples.
"""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import msgspec
from sqlalchemy import select
from sqlalchemy.orm import joinedload

from hub_server.errors import Conflict, Forbidden, NotSignedIn, Unprocessable
from hub_server.hub import Hub
from hub_server.models import Evaluation, Release, Rescoring, now
from hub_server.principal import ROLES, Principal
from hub_server.services import access, audit, job_queue
from hub_server.services.evaluation_access import check_token, evaluation_for_reading
from hub_server.services.sample_chunks import current_lines
from hub_server.services.sandboxed import NotPossible, Packages, lay_out, run_inside
from verifiers import records
from verifiers.records import MODEL_ROLES
from verifiers.statistics import mean_scored

Verdict = Literal["verified", "differs", "not_verified"]
Key = tuple[int, int]  # example_id, rollout_index

# Run in the sandbox beside the environment, as `python rescore.py`; never imported here.
RESCORE = Path(records.__file__).parent / "eval" / "rescore.py"
MOST_SAMPLES = 20_000
MOST_BYTES = 128 << 20
BATCH_SAMPLES = 2_000  # in one sandbox
BATCH_BYTES = 32 << 20
EXACT = 1e-6
SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RescoringView:
    id: int
    state: str  # queued, running, done, failed
    verdict: str | None  # verified, differs, not_verified; None: not done yet
    reason: str
    report: dict[str, Any]
    created_at: datetime
    finished_at: datetime | None


def request(hub: Hub, who: Principal, evaluation_id: str) -> RescoringView:
    """Queues an evaluation for `vf-hub worker`. Whoever pushed it may, and the project's maintainers."""
    if not hub.settings.rescoring:
        raise Conflict("this hub re-scores nothing: its operator has VF_HUB_RESCORING off", code="switched_off")
    with hub.database.write(seen=False) as session:
        evaluation = evaluation_for_reading(session, who, evaluation_id)
        if who.is_anonymous:
            raise NotSignedIn("sign in first: vf login")
        check_token(who, evaluation)
        role = access.role_on(session, who, evaluation.project)
        if evaluation.created_by_id != who.user_id and (role is None or ROLES.index(role) < ROLES.index("maintainer")):
            raise Forbidden("whoever pushed the evaluation may have it re-scored, and the environment's maintainers")
        if evaluation.state == "open":
            raise Conflict("complete the evaluation before it is re-scored", code="open")
        if evaluation.release_id is None:
            raise Unprocessable("the evaluation is bound to no release, so there is no rubric to ask", code="not_bound")
        waiting = select(Rescoring.id).where(Rescoring.evaluation_id == evaluation.id)
        if session.scalar(waiting.where(Rescoring.state.in_(("queued", "running"))).limit(1)) is not None:
            raise Conflict("the evaluation waits to be re-scored already", code="queued")
        job = Rescoring(evaluation_id=evaluation.id)
        session.add(job)
        session.flush()
        project = None if evaluation.visibility == "private" else evaluation.project
        audit.record(session, who, "evaluation.rescore", project=project, target=evaluation.id)
        return _view(job)


def of_evaluation(hub: Hub, who: Principal, evaluation_id: str) -> list[RescoringView]:
    """The newest first."""
    with hub.database.read() as session:
        evaluation = evaluation_for_reading(session, who, evaluation_id)
        jobs = select(Rescoring).where(Rescoring.evaluation_id == evaluation.id).order_by(Rescoring.id.desc()).limit(50)
        return [_view(job) for job in session.scalars(jobs)]


def _view(job: Rescoring) -> RescoringView:
    same = ("id", "state", "verdict", "reason", "report", "created_at", "finished_at")
    return RescoringView(**{key: getattr(job, key) for key in same})


# The work


class _Message(msgspec.Struct, frozen=True):
    role: str = ""


class Claimed(msgspec.Struct, frozen=True):
    """The part of a stored record that is held against what the rubric says now."""

    example_id: int
    rollout_index: int
    reward: float | None
    status: str
    prompt: list[_Message] = []
    messages: list[_Message] = []

    @property
    def lacks_words(self) -> bool:
        """What environment and tools said was kept at home, so that a rubric would judge another conversation."""
        return not self.prompt and any(message.role not in MODEL_ROLES for message in self.messages)


class Said(msgspec.Struct, frozen=True):
    """One line of `verifiers/eval/rescore.py`."""

    example_id: int
    rollout_index: int
    reward: float | None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Judged:
    verdict: Verdict
    reason: str
    report: dict[str, Any]


_claimed = msgspec.json.Decoder(Claimed)
_said = msgspec.json.Decoder(Said)


def work(hub: Hub, job_id: int, worker: str) -> None:
    """Re-scores the evaluation of a job that `worker` holds, and writes what came out unless it lost the job."""
    judged = _judge(hub, job_id)
    with hub.database.write(seen=False) as session:
        job = job_queue.held(session, Rescoring, job_id, worker)
        if job is None:
            return
        job_queue.finish(job, judged.verdict, judged.reason, judged.report)
        evaluation: Evaluation = job.evaluation
        evaluation.state = "verified" if judged.verdict == "verified" else "complete"
        evaluation.verification = {
            "verdict": judged.verdict,
            "reason": judged.reason,
            "at": now().isoformat(),
            **judged.report,
        }


def _judge(hub: Hub, job_id: int) -> Judged:
    try:
        with hub.database.read() as session:
            evaluation = session.scalars(
                select(Evaluation)
                .join(Rescoring, Rescoring.evaluation_id == Evaluation.id)
                .where(Rescoring.id == job_id)
                .options(joinedload(Evaluation.release).joinedload(Release.project))
            ).one()
            if evaluation.release is None or evaluation.release.deleted_at is not None:
                raise NotPossible("the release it was run on is not there any more")
            packages = Packages.of(evaluation.release)
            id, env_args = evaluation.id, evaluation.run.get("env_args") or {}
        lines = _by_example(hub, id)
        with tempfile.TemporaryDirectory(prefix="vf-worker-") as made:
            folder = Path(made)
            lay_out(hub, packages, folder)
            said = [s for batch in _batches(lines) for s in _score_again(hub, folder, packages.name, env_args, batch)]
        return compare((claimed for claimed, _ in lines), {(one.example_id, one.rollout_index): one for one in said})
    except NotPossible as error:
        return Judged("not_verified", str(error), {})


Line = tuple[Claimed, bytes]


def _by_example(hub: Hub, evaluation_id: str) -> list[Line]:
    """Raises NotPossible for an evaluation that is too large to be re-scored."""
    found: list[Line] = []
    n_bytes = 0
    for line in current_lines(hub, evaluation_id):
        claimed = _claimed.decode(line)
        if claimed.lacks_words:
            raise NotPossible("what the environment said during the rollouts was kept at home (publish_answers)")
        found.append((claimed, line))
        n_bytes += len(line)
        if len(found) > MOST_SAMPLES or n_bytes > MOST_BYTES:
            raise NotPossible(f"too large: up to {MOST_SAMPLES} samples and {MOST_BYTES >> 20} MiB are re-scored")
    return sorted(found, key=lambda item: (item[0].example_id, item[0].rollout_index))


def _batches(lines: Sequence[Line]) -> Iterator[list[Line]]:
    """The tries of an example stay together: a rubric may score them as a group."""
    batch: list[Line] = []
    n_bytes = 0
    for item in lines:
        is_new = not batch or item[0].example_id != batch[-1][0].example_id
        if batch and is_new and (len(batch) >= BATCH_SAMPLES or n_bytes >= BATCH_BYTES):
            yield batch
            batch, n_bytes = [], 0
        batch.append(item)
        n_bytes += len(item[1])
    if batch:
        yield batch


def _score_again(
    hub: Hub, folder: Path, environment: str, env_args: dict[str, Any], batch: Sequence[Line]
) -> list[Said]:
    files = {
        "rescore.py": RESCORE.read_bytes(),
        "order.json": msgspec.json.encode({"environment": environment, "env_args": env_args}),
        "records.ndjson": b"\n".join(line for _, line in batch) + b"\n",
    }
    ended = run_inside(hub.settings, folder, ["rescore.py"], files)
    if ended.outcome != "ok":
        said = (ended.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise NotPossible(f"the rubric could not be asked ({ended.outcome}): {said[:500]}")
    try:
        return [_said.decode(line) for line in ended.stdout.splitlines()]
    except (msgspec.DecodeError, RecursionError):
        raise NotPossible("the rubric's process printed what is no score") from None


def compare(claimed: Iterable[Claimed], said: Mapping[Key, Said]) -> Judged:
    """What was pushed against what the rubric says now. A rollout that broke off had no reward and gets none."""
    counts: Counter[str] = Counter()
    problems: Counter[str] = Counter()
    differing: list[dict[str, Any]] = []
    largest = 0.0
    before: list[float | None] = []
    after: list[float | None] = []
    for one in claimed:
        counts["n_samples"] += 1
        if one.status == "failed":
            counts["n_failed"] += 1
            continue
        now_said = said.get((one.example_id, one.rollout_index))
        reward = None if now_said is None else now_said.reward
        before.append(one.reward)
        after.append(reward)
        if one.reward is None:
            counts["n_newly_scored" if reward is not None else "n_still_unscored"] += 1
        elif reward is None:
            counts["n_not_scored"] += 1
            problems[("" if now_said is None else now_said.problem)[:200] or "no score came back"] += 1
        elif math.isclose(one.reward, reward, rel_tol=EXACT, abs_tol=EXACT):
            counts["n_equal"] += 1
        else:
            counts["n_differ"] += 1
            largest = max(largest, abs(one.reward - reward))
            differing.append(
                {
                    "example_id": one.example_id,
                    "rollout_index": one.rollout_index,
                    "pushed": one.reward,
                    "found": reward,
                }
            )
    names = ("n_samples", "n_equal", "n_differ", "n_not_scored", "n_failed", "n_still_unscored", "n_newly_scored")
    report = {
        **{name: counts[name] for name in names},
        "largest_difference": largest,
        "mean_pushed": mean_scored(before),
        "mean_found": mean_scored(after),
        "differing": differing[:SHOWN],
        "problems": [{"problem": text, "count": n} for text, n in problems.most_common(SHOWN)],
    }
    if differing:
        return Judged("differs", f"{len(differing)} rewards are not what the rubric gives", report)
    if counts["n_not_scored"] or not counts["n_equal"]:
        return Judged("not_verified", f"{counts['n_not_scored']} rollouts could not be scored again", report)
    return Judged("verified", f"all {counts['n_equal']} rewards are what the rubric gives", report)
