"""A project's leaderboard: one row for each model and version, ranked by what is certain of it.

*Which evaluation speaks for a model* is decided by evidence, never by score: a verified one before others, then the
one with more examples, with more scored rollouts, and the newest. *The rank* is by the lower bound of the mean: every
unscored rollout counts as the least reward, so that leaving out hard examples gains nothing. An evaluation with fewer
than two scored examples has no interval and no rank.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Row, select
from sqlalchemy.orm import Session, joinedload

from hub_server.hub import Hub
from hub_server.models import Evaluation, Release
from hub_server.principal import Principal
from hub_server.services import access
from hub_server.services.evaluation_access import visible

MOST_EVALUATIONS = 5_000  # the newest so many are looked at
MOST_ROWS = 500  # the best so many are shown
MOST_SETUPS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderboardRow:
    rank: int | None  # equal bounds share one; None: too little is known
    model: str
    version: str
    is_latest: bool  # of the newest version: results of older ones are for the record
    evaluation_id: str
    mean_reward: float | None
    standard_error: float | None
    interval: tuple[float, float] | None
    lower_bound: float | None
    n_samples: int
    n_examples: int
    n_unscored: int
    rollouts_per_example: int
    scores: dict[str, float | None]  # mean of each reward function
    pass_at_k: dict[int, float | None]
    is_verified: bool  # the hub re-scored it; else its figures were recomputed from the rewards that were pushed
    visibility: str
    created_by: str
    completed_at: datetime | None
    library_version: str
    n_evaluations: int  # of this model and version, this one among them


@dataclass(frozen=True, slots=True)
class Setup:
    """Arguments of `load_environment` that evaluations were run with. Results of different ones do not compare."""

    id: str  # empty: the defaults
    env_args: dict[str, Any]
    n_evaluations: int


@dataclass(frozen=True, slots=True)
class Leaderboard:
    rows: Sequence[LeaderboardRow]
    score_names: Sequence[str]  # of all rows, the heaviest first
    setup: str
    setups: Sequence[Setup]  # the most used first


def leaderboard(
    hub: Hub, who: Principal, owner: str, name: str, *, version: str | None = None, setup: str | None = None
) -> Leaderboard:
    """Of the evaluations that are not private and that `who` may see. By default of the default arguments, or of the
    most used ones when nobody ran those."""
    with hub.database.read() as session:
        project = access.project_for_reading(session, who, owner, name)
        # What ranks them alone: their figures and arguments are kilobytes each.
        wanted = (
            select(
                Evaluation.id, Evaluation.model, Evaluation.release_id, Evaluation.setup, Evaluation.state,
                Evaluation.n_samples, Evaluation.n_examples, Evaluation.n_unscored, Evaluation.mean_reward,
                Evaluation.lower_bound, Evaluation.completed_at,
                Evaluation.summary["reward"]["interval"].label("interval"),
            )
            .join(Evaluation.project)
            .join(Release, Release.id == Evaluation.release_id)
            .where(Evaluation.project_id == project.id, visible(who), Evaluation.visibility != "private")
            .where(Evaluation.state.in_(("complete", "verified")), Evaluation.dirty.is_(False))
            .where(Release.deleted_at.is_(None))
            .order_by(Evaluation.completed_at.desc())
            .limit(MOST_EVALUATIONS)
        )  # fmt: skip
        if version is not None:
            wanted = wanted.where(Release.version == version)
        found: Sequence[Any] = session.execute(wanted).all()
        setups = _setups(session, found)
        chosen = setup if setup is not None else _default(setups)
        shown = _shown(session, [row for row in found if row.setup == chosen])
        rows = [_row(evaluation, rank, n, project.latest_release_id) for evaluation, rank, n in shown]
    return Leaderboard(rows, _score_names([evaluation for evaluation, _, _ in shown]), chosen, setups)


def _setups(session: Session, found: Sequence[Row[Any]]) -> list[Setup]:
    counts = Counter(row.setup for row in found).most_common(MOST_SETUPS)
    one_of = {row.setup: row.id for row in found}
    ids = [one_of[id] for id, _ in counts]
    runs = session.execute(select(Evaluation.setup, Evaluation.run).where(Evaluation.id.in_(ids)))
    args = {row.setup: row.run.get("env_args") or {} for row in runs}
    return [Setup(id, args[id], n) for id, n in counts]


def _default(setups: Sequence[Setup]) -> str:
    return "" if not setups or any(setup.id == "" for setup in setups) else setups[0].id


def _shown(session: Session, found: Sequence[Row[Any]]) -> list[tuple[Evaluation, int | None, int]]:
    """The one that speaks for each model and version, with its rank and how many there are, the best first."""
    groups: dict[tuple[str, int | None], list[Row[Any]]] = defaultdict(list)
    for row in found:
        groups[row.model, row.release_id].append(row)
    chosen = [(max(group, key=evidence), len(group)) for group in groups.values()]
    chosen.sort(key=lambda pair: _place(pair[0]))
    chosen = chosen[:MOST_ROWS]
    evaluations = session.scalars(
        select(Evaluation)
        .where(Evaluation.id.in_([row.id for row, _ in chosen]))
        .options(joinedload(Evaluation.release), joinedload(Evaluation.created_by))
    )
    by_id = {evaluation.id: evaluation for evaluation in evaluations}
    shown: list[tuple[Evaluation, int | None, int]] = []
    for number, (row, n) in enumerate(chosen, 1):
        rank: int | None = None
        if _is_ranked(row):
            before, before_rank = shown[-1][:2] if shown else (None, None)
            is_equal = before is not None and before.lower_bound == row.lower_bound
            rank = before_rank if is_equal else number
        shown.append((by_id[row.id], rank, n))
    return shown


def evidence(row: Row[Any]) -> tuple[Any, ...]:
    """Of two evaluations of one model, the greater speaks for it. The reward plays no part."""
    return row.state == "verified", row.n_examples, row.n_samples - row.n_unscored, row.completed_at, row.id


def _is_ranked(row: Row[Any]) -> bool:
    return row.lower_bound is not None and row.interval is not None


def _place(row: Row[Any]) -> tuple[Any, ...]:
    mean = row.mean_reward if row.mean_reward is not None else float("-inf")
    return not _is_ranked(row), -(row.lower_bound or 0.0), -mean, row.model, row.id


def _row(evaluation: Evaluation, rank: int | None, n: int, latest: int | None) -> LeaderboardRow:
    summary, release = evaluation.summary, evaluation.release
    assert release is not None
    interval = summary["reward"]["interval"]
    same = (
        "model", "mean_reward", "lower_bound", "n_samples", "n_examples", "n_unscored", "rollouts_per_example",
        "visibility", "completed_at", "library_version",
    )  # fmt: skip
    return LeaderboardRow(
        rank=rank,
        version=release.version,
        is_latest=release.id == latest,
        evaluation_id=evaluation.id,
        standard_error=summary["reward"]["standard_error"],
        interval=None if interval is None else (interval[0], interval[1]),
        scores={score["name"]: score["mean"] for score in summary["scores"]},
        pass_at_k={at["k"]: at["pass_at_k"] for at in summary["at_k"]},
        is_verified=evaluation.state == "verified",
        created_by=evaluation.created_by.name,
        n_evaluations=n,
        **{key: getattr(evaluation, key) for key in same},
    )


def _score_names(found: Sequence[Evaluation]) -> list[str]:
    weights: dict[str, float] = {}
    for evaluation in found:
        for score in evaluation.summary["scores"]:
            weights.setdefault(score["name"], abs(score["weight"]))
    return sorted(weights, key=lambda name: (-weights[name], name))
