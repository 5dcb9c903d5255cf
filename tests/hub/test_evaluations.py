"""Evaluations: begun once however often asked for, bound to what was run, computed from their samples."""

from __future__ import annotations

import io
import json
import zipfile
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hub_evaluations import Pusher, broken, lines, pusher, record
from hub_packages import Package
from hub_world import World, bearer
from sqlalchemy import select
from starlette.testclient import TestClient

from hub_server.models import AuditEvent, Evaluation, Project, Sample, SampleChunk, now
from hub_server.services.binding import files_hash
from hub_server.services.evaluations import create
from hub_server.services.new_evaluation import NewEvaluation
from hub_server.services.sweep import sweep
from verifiers.installed import _hash_files
from verifiers.statistics import summarise


@pytest.fixture
def push(world: World, client: TestClient) -> Pusher:
    return pusher(world, client, world.user("ada"), visibility="public")


def test_item_46_a_repeated_create_gives_the_first_ones_id(push: Pusher) -> None:
    first = push.begin(idempotency_key="run-0a1b2c3d")
    again = push.begin(idempotency_key="run-0a1b2c3d", expect=200)
    assert again["id"] == first["id"]
    assert len(push.get("/projects/ada/sums/evaluations")["evaluations"]) == 1


def test_many_creates_at_once_with_one_key_make_one_evaluation(push: Pusher, world: World) -> None:
    new = NewEvaluation(idempotency_key="run-0a1b2c3d", model="small", version="1.0.0", wheel_sha256=push.wheel)
    with ThreadPoolExecutor(8) as pool:
        begun = list(pool.map(lambda _: create(world.hub, push.person.principal, "ada", "sums", new), range(16)))
    assert len({one.evaluation.id for one in begun}) == 1
    assert [one.is_new for one in begun].count(True) == 1


def test_a_key_used_for_another_run_is_refused(push: Pusher) -> None:
    push.begin(idempotency_key="run-0a1b2c3d")
    refused = push.begin(idempotency_key="run-0a1b2c3d", model="large", expect=409)
    assert refused["code"] == "key_reused" and "model" in refused["detail"]


def test_the_same_key_of_two_users_makes_two_evaluations(push: Pusher, world: World, client: TestClient) -> None:
    other = pusher(world, client, world.user("bob"))
    assert push.begin(idempotency_key="run-0a1b2c3d")["id"] != other.begin(idempotency_key="run-0a1b2c3d")["id"]


def test_an_evaluation_is_private_until_somebody_says_otherwise(push: Pusher, world: World, client: TestClient) -> None:
    id = push.push([[1.0], [0.0]])
    bob = world.user("bob")
    path = f"/api/v1/evaluations/{id}"
    assert client.get(path).status_code == client.get(path, headers=bob.headers).status_code == 404
    shown = client.put(f"{path}/visibility", json={"visibility": "public"}, headers=push.person.headers)
    assert shown.json()["visibility"] == "public"
    assert client.get(path).json()["mean_reward"] == 0.5


def test_an_evaluation_for_the_project_is_seen_by_whoever_has_a_role_there(world: World, client: TestClient) -> None:
    ada, bob, eve = (world.user(name) for name in ("ada", "bob", "eve"))
    world.organisation("lab", ada="owner", bob="reader")
    push = pusher(world, client, ada, "lab/sums", visibility="public")
    id = push.push([[1.0], [0.0]], visibility="project")
    seen = {
        person.name: client.get(f"/api/v1/evaluations/{id}", headers=person.headers).status_code
        for person in (bob, eve)
    }
    assert seen == {"bob": 200, "eve": 404}


def test_an_open_evaluation_is_seen_by_nobody_else(push: Pusher, world: World, client: TestClient) -> None:
    id = push.begin(visibility="public")["id"]
    push.send(id, lines([record(wheel=push.wheel)]))
    assert client.get(f"/api/v1/evaluations/{id}").status_code == 404
    push.complete(id)
    assert client.get(f"/api/v1/evaluations/{id}").status_code == 200


def test_item_47_a_version_that_the_hub_does_not_have_is_refused(push: Pusher) -> None:
    assert push.begin(version="9.9.9", expect=422)["code"] == "unknown_version"


def test_item_47_another_wheel_than_the_hubs_is_refused(push: Pusher) -> None:
    assert push.begin(wheel_sha256="0" * 64, expect=422)["code"] == "other_wheel"
    assert push.begin(wheel_sha256="source:" + "0" * 64, expect=422)["code"] == "not_bound"
    assert push.begin(wheel_sha256=None, expect=422)["code"] == "not_bound"


def test_an_edited_tree_is_kept_and_bound_to_nothing(push: Pusher) -> None:
    begun = push.begin(dirty=True, version=None, wheel_sha256="source:" + "0" * 64)
    assert begun["version"] is None and begun["dirty"]
    push.send(begun["id"], lines([record(wheel="source:" + "0" * 64)]))
    assert push.complete(begun["id"])["mean_reward"] == 1.0
    assert push.get("/projects/ada/sums/leaderboard")["rows"] == []


def test_the_hash_of_an_installed_copys_files_binds_as_the_wheels_does(
    push: Pusher, world: World, tmp_path: Path
) -> None:
    site = tmp_path / "site"
    with zipfile.ZipFile(io.BytesIO(Package("sums").wheel())) as wheel:  # an installer that kept no direct_url.json
        wheel.extractall(site)
    of_copy = "files:" + _hash_files(site, [f for f in site.rglob("*") if f.is_file() and f.name != "RECORD"])
    assert push.begin(wheel_sha256=of_copy)["version"] == "1.0.0"
    with world.hub.database.read() as session:
        project = session.scalars(select(Project)).one()
        assert [files_hash(file) for file in project.releases[0].files if file.kind == "wheel"] == [of_copy]


def test_figures_are_those_of_the_samples(push: Pusher) -> None:
    rewards = [[1.0, 1.0, 0.0], [0.0, None, 1.0], [0.25, 0.5, 0.5], [None, None, None]]
    id = push.push(rewards)
    found = push.get(f"/evaluations/{id}")
    stats = summarise([(example, reward) for example, tries in enumerate(rewards) for reward in tries])
    summary = found["summary"]
    assert (found["n_samples"], found["n_examples"], found["rollouts_per_example"], found["n_unscored"]) == (
        12,
        4,
        3,
        4,
    )
    assert summary["reward"]["mean"] == found["mean_reward"] == stats.mean
    assert summary["reward"]["standard_error"] == stats.standard_error
    assert summary["reward"]["interval"] == [stats.interval.low, stats.interval.high]
    assert summary["reward"]["bounds"] == [stats.bounds.lower, stats.bounds.upper]
    assert found["lower_bound"] == stats.bounds.lower
    assert [at["pass_at_k"] for at in summary["at_k"]] == [at.pass_at_k for at in stats.at_k]
    assert [at["k"] for at in summary["at_k"]] == [1, 2, 3]


def test_the_summary_names_functions_errors_and_stop_reasons(push: Pusher) -> None:
    id = push.begin()["id"]
    made = [record(0, wheel=push.wheel), record(1, 0, None, wheel=push.wheel), broken(2, wheel=push.wheel)]
    push.send(id, lines(made))
    summary = push.complete(id)["summary"]
    assert summary["statuses"] == {"scored": 1, "fault": 1, "failed": 1}
    correct, length = summary["scores"]
    assert (correct["name"], correct["mean"], correct["n_scored"], correct["n_fault"]) == ("correct", 1.0, 1, 1)
    assert (length["name"], length["weight"], length["n_scored"]) == ("length", 0.0, 2)
    assert summary["errors"] == [{"side": "tool", "type": "ToolCallError", "count": 1}]
    assert summary["stop_conditions"] == {"finished": 3}
    assert summary["usage"]["completion"] == 6 and summary["turns"] == 1.0


def test_a_reward_that_is_not_the_sum_of_its_scores_is_counted(push: Pusher) -> None:
    id = push.begin()["id"]
    push.send(id, lines([record(0, wheel=push.wheel), record(1, wheel=push.wheel, reward=0.5, scores=record().scores)]))
    assert push.complete(id)["summary"]["n_reward_differs"] == 1


def test_item_46_metrics_that_disagree_with_the_samples_are_named(push: Pusher) -> None:
    id = push.begin()["id"]
    push.send(id, lines([record(0, wheel=push.wheel), record(1, 0, 0.0, wheel=push.wheel)]))
    refused = push.complete(
        id, expect=422, avg_reward=0.9, n_samples=2, pass_at_k={"1": 0.75}, avg_metrics={"correct": 0.5}, glory=1
    )
    assert refused["code"] == "metrics_disagree"
    assert "avg_reward: claimed 0.9, computed 0.5" in refused["detail"]
    assert "pass_at_k.1: claimed 0.75, computed 0.5" in refused["detail"]
    assert "glory: cannot be checked" in refused["detail"]
    assert "n_samples" not in refused["detail"] and "avg_metrics" not in refused["detail"]
    assert push.get(f"/evaluations/{id}")["state"] == "open"
    assert push.complete(id, avg_reward=0.5, n_samples=2)["state"] == "complete"


def test_completing_again_changes_nothing(push: Pusher) -> None:
    id = push.push([[1.0], [0.0]])
    first = push.get(f"/evaluations/{id}")
    assert push.complete(id, avg_reward=0.5) == first
    assert push.complete(id, avg_reward=0.6, expect=422)["code"] == "metrics_disagree"


def test_an_evaluation_without_samples_cannot_be_completed(push: Pusher) -> None:
    assert push.complete(push.begin()["id"], expect=422)["code"] == "no_samples"


@pytest.mark.parametrize(
    "changes",
    [
        {"idempotency_key": "short"},
        {"idempotency_key": "with a space"},
        {"model": ""},
        {"model": "a\nb"},
        {"model": "m" * 201},
        {"name": "\ud800"},
        {"wheel_sha256": "xyz"},
        {"run": {"env_args": {"a": "\ud800"}}},
        {"run": {"env_args": {"a": "x" * 70_000}}},
        {"run": {"pass_threshold": 10**400}},
        {"pass_threshold": float("nan")},
        {"version": "1" * 70},
    ],
    ids=lambda changes: str(changes)[:60],
)
def test_what_is_wrong_in_itself_is_refused(push: Pusher, changes: dict[str, Any]) -> None:
    body = {"idempotency_key": "0a1b2c3d", "model": "small", "version": "1.0.0", "wheel_sha256": push.wheel, **changes}
    answer = push.client.post(
        "/api/v1/projects/ada/sums/evaluations",
        content=json.dumps(body),
        headers={**push.person.headers, "Content-Type": "application/json"},
    )
    assert answer.status_code in (400, 422) and answer.headers["content-type"] == "application/problem+json"


def test_of_a_runs_metadata_only_what_others_may_know_is_kept(push: Pusher) -> None:
    run = {"env_args": {"digits": 3}, "seed": 1, "base_url": "http://10.0.0.7", "parts": [{"host": "ada-laptop"}]}
    assert push.begin(run=run)["run"] == {"env_args": {"digits": 3}, "seed": 1}


def test_a_read_token_cannot_push(push: Pusher, world: World, client: TestClient) -> None:
    token = world.token("ada", scope="read")
    body = {"idempotency_key": "0a1b2c3d", "model": "small", "version": "1.0.0", "wheel_sha256": push.wheel}
    answer = client.post("/api/v1/projects/ada/sums/evaluations", json=body, headers=bearer(token))
    assert answer.status_code == 403
    assert client.post("/api/v1/projects/ada/sums/evaluations", json=body).status_code == 401


def test_a_token_of_another_project_cannot_push(push: Pusher, world: World, client: TestClient) -> None:
    world.release("ada/products")
    token = world.token("ada", scope="publish", project="ada/products")
    id = push.push([[1.0]])
    body = {"idempotency_key": "0a1b2c3d", "model": "small", "version": "1.0.0", "wheel_sha256": push.wheel}
    assert client.post("/api/v1/projects/ada/sums/evaluations", json=body, headers=bearer(token)).status_code == 403
    assert client.get(f"/api/v1/evaluations/{id}", headers=bearer(token)).status_code == 404


def test_only_whoever_pushed_it_adds_samples(push: Pusher, world: World, client: TestClient) -> None:
    id = push.push([[1.0]], visibility="public")
    other = pusher(world, client, world.user("bob"))
    assert other.send(id, lines([record(5, wheel=push.wheel)]), expect=403)
    assert other.complete(id, expect=403)


def test_the_owner_of_a_project_may_hide_what_others_pushed_and_not_show_it(world: World, client: TestClient) -> None:
    ada = world.user("ada")
    owner = pusher(world, client, ada, visibility="public")
    id = pusher(world, client, world.user("bob")).push([[1.0]], visibility="public")
    path = f"/api/v1/evaluations/{id}/visibility"
    assert client.put(path, json={"visibility": "project"}, headers=owner.person.headers).status_code == 403
    assert client.put(path, json={"visibility": "private"}, headers=owner.person.headers).status_code == 200
    assert client.get(f"/api/v1/evaluations/{id}").status_code == 404


def test_deleting_takes_the_samples_away_for_good(push: Pusher, world: World) -> None:
    id = push.push([[1.0], [0.0]], idempotency_key="run-0a1b2c3d")
    answer = push.client.delete(f"/api/v1/evaluations/{id}", headers=push.person.headers)
    assert answer.status_code == 204
    push.get(f"/evaluations/{id}", expect=404)
    with world.hub.database.read() as session:
        assert session.scalars(select(Sample)).all() == []
    assert list(world.hub.storage.list("samples/")) == []
    assert "deleted" in push.begin(idempotency_key="run-0a1b2c3d", expect=409)["detail"]


def test_one_that_was_left_open_is_removed_with_its_samples_and_its_pusher_is_told(
    push: Pusher, world: World, client: TestClient
) -> None:
    id = push.begin(idempotency_key="run-0a1b2c3d")["id"]
    push.send(id, lines([record(wheel=push.wheel)]))
    assert sweep(world.hub, now() + timedelta(days=8)).evaluations == 1
    with world.hub.database.read() as session:
        assert [*session.scalars(select(Sample)), *session.scalars(select(SampleChunk))] == []
    assert list(world.hub.storage.list("samples/")) == []

    told = [push.send(id, lines([record(wheel=push.wheel)]), expect=404), push.complete(id, expect=404)]
    told.append(push.get(f"/evaluations/{id}", expect=404))
    assert {one["code"] for one in told} == {"left_open"}
    assert "never completed" in told[0]["detail"] and "Push the run again" in told[0]["detail"]
    others = [client.get(f"/api/v1/evaluations/{id}", headers=headers) for headers in ({}, world.user("bob").headers)]
    assert {(one.status_code, one.json()["code"]) for one in others} == {(404, "not_found")}
    anew = push.begin(idempotency_key="run-0a1b2c3d")
    assert anew["id"] != id
    push.send(anew["id"], lines([record(wheel=push.wheel)]))
    assert push.complete(anew["id"])["mean_reward"] == 1.0


def test_one_is_not_left_open_while_samples_come_or_it_is_begun_again(push: Pusher, world: World) -> None:
    def aged(id: str) -> str:
        with world.hub.database.write() as session:
            session.get_one(Evaluation, id).arrived_at = now() - timedelta(days=10)
        return id

    silent = aged(push.begin()["id"])
    sent = aged(push.begin()["id"])
    push.send(sent, lines([record(wheel=push.wheel)]))
    again = aged(push.begin(idempotency_key="run-0a1b2c3d")["id"])
    push.begin(idempotency_key="run-0a1b2c3d", expect=200)
    complete = aged(push.push([[1.0]]))
    assert sweep(world.hub).evaluations == 1
    assert push.get(f"/evaluations/{silent}", expect=404)["code"] == "left_open"
    assert [push.get(f"/evaluations/{id}")["state"] for id in (sent, again, complete)] == ["open", "open", "complete"]


def test_samples_that_a_crash_kept_back_from_being_deleted_are_swept(push: Pusher, world: World) -> None:
    id = push.push([[1.0], [0.0]])
    with world.hub.database.write() as session:
        session.get_one(Evaluation, id).deleted_at = now()
    sweep(world.hub)
    assert len(list(world.hub.storage.list("samples/"))) == 1, "they may be being deleted just now"
    sweep(world.hub, now() + timedelta(hours=2))
    with world.hub.database.read() as session:
        assert session.scalars(select(Sample)).all() == []
    assert list(world.hub.storage.list("samples/")) == []


def test_every_deed_is_in_the_audit_log(push: Pusher, world: World) -> None:
    id = push.push([[1.0]])
    push.client.put(f"/api/v1/evaluations/{id}/visibility", json={"visibility": "public"}, headers=push.person.headers)
    push.client.delete(f"/api/v1/evaluations/{id}", headers=push.person.headers)
    with world.hub.database.read() as session:
        deeds = session.scalars(select(AuditEvent.action).where(AuditEvent.target == id).order_by(AuditEvent.id)).all()
    assert deeds == ["evaluation.create", "evaluation.complete", "evaluation.visibility", "evaluation.delete"]


def test_lists_come_page_by_page_the_newest_first(push: Pusher) -> None:
    ids = [push.push([[1.0]], model=f"m{n % 2}") for n in range(5)]
    seen: list[str] = []
    after: str | None = None
    while True:
        found = push.get("/projects/ada/sums/evaluations", limit=2, **({"after": after} if after else {}))
        seen += [evaluation["id"] for evaluation in found["evaluations"]]
        after = found["next_after"]
        if after is None:
            break
    assert seen == ids[::-1]
    only = push.get("/projects/ada/sums/evaluations", model="m0")["evaluations"]
    assert [evaluation["id"] for evaluation in only] == ids[::-2]


def test_an_evaluation_of_a_private_project_is_hidden_with_it(world: World, client: TestClient) -> None:
    push = pusher(world, client, world.user("ada"))
    id = push.push([[1.0]], visibility="public")
    eve = world.user("eve")
    for path in ("", "/samples", "/examples", "/rollouts/0/0", f"/compare/{id}"):
        assert client.get(f"/api/v1/evaluations/{id}{path}").status_code == 404
        assert client.get(f"/api/v1/evaluations/{id}{path}", headers=eve.headers).status_code == 404
    assert client.get("/api/v1/projects/ada/sums/leaderboard", headers=eve.headers).status_code == 404
    assert client.get("/api/v1/projects/ada/sums/pass-rates", headers=eve.headers).status_code == 404
