"""Runs of small models as the hub gets them: records, a client that pushes them, and evaluations made in one call."""

from __future__ import annotations

import gzip
import secrets
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from hub_packages import Package
from hub_world import Person, World
from sqlalchemy import select
from starlette.testclient import TestClient

from hub_server.models import File, Release
from verifiers.records import (
    EnvInfo,
    Failure,
    ModelInfo,
    RolloutRecord,
    Score,
    Timing,
    TokenUsage,
    Turn,
    encode_record,
)

ENV = "sums"


def wheel_sha256(world: World, ref: str, version: str = "1.0.0") -> str:
    wanted = select(File.sha256).join(File.release).where(Release.version == version, File.kind == "wheel")
    with world.hub.database.read() as session:
        return session.scalars(wanted.where(File.project_id == world.project_id(ref))).one()


def record(
    example_id: int = 0,
    rollout_index: int = 0,
    reward: float | None = 1.0,
    *,
    model: str = "small",
    wheel: str | None = None,
    version: str | None = "1.0.0",
    env: str = ENV,
    text: str = "4",
    question: str = "",
    **changes: Any,
) -> RolloutRecord:
    """`reward=None`: a judge that did not answer."""
    is_scored = reward is not None
    correct = Score(name="correct", weight=1.0, value=reward)
    if reward is None:
        correct = Score(name="correct", weight=1.0, value=None, status="fault", side="judge")
    made = RolloutRecord(
        env=EnvInfo(name=env, version=version, wheel_sha256=wheel),
        example_id=example_id,
        rollout_index=rollout_index,
        model=ModelInfo(name=model),
        prompt=[{"role": "user", "content": question or f"What is {example_id} + 2?"}],
        messages=[{"role": "assistant", "content": text}],
        answer=str(example_id + 2),
        turns=[Turn(start=0, end=1, finish_reason="stop")],
        scores=[correct, Score(name="length", weight=0.0, value=float(len(text)))],
        reward=reward,
        status="scored" if is_scored else "fault",
        stop_condition="finished",
        timing=Timing(total_s=0.5),
        usage=TokenUsage(prompt=10, completion=2),
    )
    return msgspec.structs.replace(made, **changes)


def broken(example_id: int = 0, rollout_index: int = 0, **changes: Any) -> RolloutRecord:
    """A rollout whose tool failed."""
    error = Failure(side="tool", type="ToolCallError", message="no such file")
    fields: dict[str, Any] = {"status": "failed", "errors": [error], "scores": []}
    return record(example_id, rollout_index, None, **{**fields, **changes})


def lines(records: Iterable[RolloutRecord]) -> bytes:
    return b"".join(encode_record(made) + b"\n" for made in records)


class Pusher:
    """One user's pushes to one environment, by the API."""

    def __init__(self, client: TestClient, person: Person, ref: str, wheel: str | None) -> None:
        self.client, self.person, self.ref, self.wheel = client, person, ref, wheel

    def begin(self, *, expect: int = 201, **changes: Any) -> dict[str, Any]:
        body: dict[str, Any] = {
            "idempotency_key": secrets.token_hex(8),
            "model": "small",
            "version": "1.0.0",
            "wheel_sha256": self.wheel,
        }
        answer = self.client.post(
            f"/api/v1/projects/{self.ref}/evaluations", json={**body, **changes}, headers=self.person.headers
        )
        assert answer.status_code == expect, answer.text
        return answer.json()

    def send(self, id: str, body: bytes, *, gzipped: bool = False, expect: int = 200) -> dict[str, Any]:
        headers = dict(self.person.headers)
        if gzipped:
            body, headers["Content-Encoding"] = gzip.compress(body), "gzip"
        answer = self.client.post(f"/api/v1/evaluations/{id}/samples", content=body, headers=headers)
        assert answer.status_code == expect, answer.text
        return answer.json()

    def complete(self, id: str, *, expect: int = 200, **metrics: Any) -> dict[str, Any]:
        answer = self.client.post(
            f"/api/v1/evaluations/{id}/complete", json={"metrics": metrics}, headers=self.person.headers
        )
        assert answer.status_code == expect, answer.text
        return answer.json()

    def get(self, path: str, *, expect: int = 200, **query: Any) -> Any:
        answer = self.client.get(f"/api/v1{path}", params=query, headers=self.person.headers)
        assert answer.status_code == expect, answer.text
        return answer.json()

    def push(self, rewards: Sequence[Sequence[float | None]], *, model: str = "small", **changes: Any) -> str:
        """A completed evaluation: one list of rewards an example, one reward a try. Its id."""
        id = self.begin(model=model, **changes)["id"]
        made = [
            record(example_id, index, reward, model=model, wheel=self.wheel)
            for example_id, tries in enumerate(rewards)
            for index, reward in enumerate(tries)
        ]
        self.send(id, lines(made))
        self.complete(id)
        return id


def pusher(world: World, client: TestClient, person: Person, ref: str = "ada/sums", **release: Any) -> Pusher:
    """A released environment, made when it is missing, and somebody who pushes to it."""
    if world.project_id(ref) is None:
        world.release(ref, package=Package(ENV), **release)
    return Pusher(client, person, ref, wheel_sha256(world, ref))
