"""How often each example of a release is passed: seeds for a trainer's curriculum, and a sign of broken examples.

Counted over all completed evaluations of the release that whoever asks may see, run with the same arguments.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import select
from sqlalchemy.orm import Session

from hub_server.hub import Hub
from hub_server.models import Evaluation, ExampleRate, Release
from hub_server.principal import Principal
from hub_server.services import access
from hub_server.services.details import release_named
from hub_server.services.evaluation_access import visible
from verifiers.statistics import share_interval

Flag = Literal["never_passed", "always_passed", "often_unscored", "inverted"]

ENOUGH_TRIES = 8  # scored, before "never" and "always" mean something
ENOUGH_MODELS = 4  # before stronger and weaker ones are told apart
INVERTED_BY = 0.5  # the weaker half passes it more often by this much
UNSCORED_SHARE = 0.5
MOST_ON_A_PAGE = 5_000
MOST_EVALUATIONS = 500  # the newest so many


@dataclass(frozen=True, slots=True)
class ExamplePassRate:
    example_id: int
    n: int
    n_scored: int
    n_passed: int
    pass_rate: float | None  # of the scored; None without any
    low: float | None  # 95 % interval of the rate (Wilson)
    high: float | None
    mean_reward: float | None
    n_models: int  # with a scored try
    flags: Sequence[Flag]


@dataclass(frozen=True, slots=True)
class PassRates:
    version: str
    setup: str
    n_evaluations: int
    models: Sequence[str]
    examples: Sequence[ExamplePassRate]
    next_after: int | None  # an example_id; None: there are no more


@dataclass(frozen=True, slots=True)
class _Source:
    id: str
    model: str
    mean: float | None


def pass_rates(
    hub: Hub,
    who: Principal,
    owner: str,
    name: str,
    *,
    version: str | None = None,
    setup: str = "",
    model: str | None = None,
    after: int = -(1 << 63),
    limit: int = 1_000,
) -> PassRates:
    """By example id, those above `after`. `version` is by default the newest. Raises NotFound."""
    limit = max(1, min(limit, MOST_ON_A_PAGE))
    with hub.database.read() as session:
        project = access.project_for_reading(session, who, owner, name)
        release = release_named(session, project, version or "latest")
        sources = _sources(session, who, release, setup, model)
        of_page = (
            select(ExampleRate.example_id)
            .where(ExampleRate.project_id == project.id, ExampleRate.example_id > after)
            .where(ExampleRate.evaluation_id.in_([source.id for source in sources]))
            .distinct()
            .order_by(ExampleRate.example_id)
            .limit(limit + 1)
        )
        ids = list(session.scalars(of_page))
        found: dict[int, list[ExampleRate]] = {id: [] for id in ids[:limit]}
        if found:
            rates = select(ExampleRate).where(
                ExampleRate.project_id == project.id,
                ExampleRate.evaluation_id.in_([source.id for source in sources]),
                ExampleRate.example_id.between(ids[0], ids[:limit][-1]),
            )
            for rate in session.scalars(rates):
                found[rate.example_id].append(rate)
        by_id = {source.id: source for source in sources}
        examples = [_summed(example_id, rates, by_id) for example_id, rates in found.items()]
        models = sorted({source.model for source in sources})
        next_after = ids[limit - 1] if len(ids) > limit else None
        return PassRates(release.version, setup, len(sources), models, examples, next_after)


def _sources(session: Session, who: Principal, release: Release, setup: str, model: str | None) -> list[_Source]:
    wanted = (
        select(Evaluation.id, Evaluation.model, Evaluation.mean_reward)
        .join(Evaluation.project)
        .where(Evaluation.release_id == release.id, Evaluation.setup == setup, visible(who))
        .where(Evaluation.state.in_(("complete", "verified")))
        .order_by(Evaluation.completed_at.desc())
        .limit(MOST_EVALUATIONS)
    )
    if model is not None:
        wanted = wanted.where(Evaluation.model == model)
    return [_Source(*row) for row in session.execute(wanted)]


def _summed(example_id: int, rates: Sequence[ExampleRate], by_id: dict[str, _Source]) -> ExamplePassRate:
    n, n_scored, n_passed = (sum(getattr(rate, key) for rate in rates) for key in ("n", "n_scored", "n_passed"))
    total = sum(rate.mean_reward * rate.n_scored for rate in rates if rate.mean_reward is not None)
    interval = share_interval(n_passed, n_scored)
    return ExamplePassRate(
        example_id=example_id,
        n=n,
        n_scored=n_scored,
        n_passed=n_passed,
        pass_rate=n_passed / n_scored if n_scored else None,
        low=None if interval is None else interval.low,
        high=None if interval is None else interval.high,
        mean_reward=total / n_scored if n_scored else None,
        n_models=len({by_id[rate.evaluation_id].model for rate in rates if rate.n_scored}),
        flags=_flags(n, n_scored, n_passed, rates, by_id),
    )


def _flags(n: int, n_scored: int, n_passed: int, rates: Sequence[ExampleRate], by_id: dict[str, _Source]) -> list[Flag]:
    flags: list[Flag] = []
    if n_scored >= ENOUGH_TRIES and n_passed == 0:
        flags.append("never_passed")  # too hard, or its answer is wrong
    if n_scored >= ENOUGH_TRIES and n_passed == n_scored:
        flags.append("always_passed")  # nothing left to learn, or anything is taken for right
    if n and (n - n_scored) / n >= UNSCORED_SHARE:
        flags.append("often_unscored")  # the grader fails on it
    if is_inverted(rates, by_id):
        flags.append("inverted")  # its answer may be what a weak model would say
    return flags


def is_inverted(rates: Sequence[ExampleRate], by_id: dict[str, _Source]) -> bool:
    """Whether models that are weaker over all examples pass this one clearly more often than stronger ones do."""
    known: dict[str, list[tuple[float, float]]] = {}
    for rate in rates:
        source = by_id[rate.evaluation_id]
        if rate.n_scored and source.mean is not None:
            known.setdefault(source.model, []).append((source.mean, rate.n_passed / rate.n_scored))
    ranked = sorted((_mean(m for m, _ in of), _mean(p for _, p in of)) for of in known.values())
    if len(ranked) < ENOUGH_MODELS or ranked[0][0] == ranked[-1][0]:
        return False
    half = len(ranked) // 2
    weaker, stronger = ranked[:half], ranked[-half:]
    return _mean(p for _, p in weaker) - _mean(p for _, p in stronger) >= INVERTED_BY


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found)
