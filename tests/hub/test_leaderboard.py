"""The leaderboard ranks by what is certain, and takes the best evidence, never the best score."""

from __future__ import annotations

import pytest
from hub_evaluations import Pusher, lines, pusher, record, wheel_sha256
from hub_packages import Package
from hub_world import World
from starlette.testclient import TestClient

from hub_server.models import Evaluation


@pytest.fixture
def push(world: World, client: TestClient) -> Pusher:
    return pusher(world, client, world.user("ada"), visibility="public")


def board(push: Pusher, **query: str) -> list[dict[str, object]]:
    answer = push.client.get(f"/api/v1/projects/{push.ref}/leaderboard", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()["rows"]


def test_models_are_ranked_by_the_lower_bound_so_that_unscored_rollouts_gain_nothing(push: Pusher) -> None:
    push.push([[1.0], [1.0], [None], [None]], model="picky", visibility="public")  # mean 1.0, at least 0.5
    push.push([[1.0], [1.0], [1.0], [0.0]], model="honest", visibility="public")  # mean 0.75
    rows = board(push)
    assert [(row["rank"], row["model"], row["lower_bound"]) for row in rows] == [(1, "honest", 0.75), (2, "picky", 0.5)]
    assert rows[1]["mean_reward"] == 1.0 and rows[1]["n_unscored"] == 2


def test_a_row_says_n_rollouts_interval_scores_versions_and_who(push: Pusher) -> None:
    id = push.push([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]], visibility="public", library_version="1.0.0")
    (row,) = board(push)
    assert (row["evaluation_id"], row["n_samples"], row["n_examples"], row["rollouts_per_example"]) == (id, 6, 3, 2)
    low, high = row["interval"]  # pyright: ignore[reportGeneralTypeIssues]
    assert low < 0.5 < high and row["mean_reward"] == 0.5 and row["standard_error"] > 0  # pyright: ignore[reportOperatorIssue]
    assert row["scores"] == {"correct": 0.5, "length": 1.0} and row["pass_at_k"] == {"1": 0.5, "2": 2 / 3}
    assert (row["version"], row["is_latest"], row["library_version"]) == ("1.0.0", True, "1.0.0")
    assert row["created_by"] == "ada" and row["is_verified"] is False


def test_equal_bounds_share_a_rank(push: Pusher) -> None:
    for model, rewards in {"a": [1.0, 0.0], "b": [0.0, 1.0], "c": [0.0, 0.0]}.items():
        push.push([[reward] for reward in rewards], model=model, visibility="public")
    assert [(row["model"], row["rank"]) for row in board(push)] == [("a", 1), ("b", 1), ("c", 3)]


def test_a_single_example_has_no_rank_however_well_it_went(push: Pusher) -> None:
    push.push([[1.0] * 4], model="lucky", visibility="public")
    push.push([[1.0], [0.0]], model="plain", visibility="public")
    assert [(row["model"], row["rank"]) for row in board(push)] == [("plain", 1), ("lucky", None)]


def test_of_several_evaluations_the_one_with_most_evidence_speaks(push: Pusher, world: World) -> None:
    push.push([[1.0], [1.0]], visibility="public")
    thorough = push.push([[1.0], [0.0], [0.0]], visibility="public")
    push.push([[1.0], [1.0], [None]], visibility="public")  # fewer scored
    (row,) = board(push)
    assert row["evaluation_id"] == thorough and row["n_evaluations"] == 3
    small = push.push([[0.0], [0.0]], visibility="public")
    with world.hub.database.write() as session:
        session.get_one(Evaluation, small).state = "verified"
    (row,) = board(push)
    assert row["evaluation_id"] == small and row["is_verified"] is True


def test_each_version_has_its_own_row(push: Pusher, world: World) -> None:
    push.push([[1.0], [1.0]], visibility="public")
    world.release("ada/sums", package=Package("sums", "2.0.0"))
    newer = Pusher(push.client, push.person, "ada/sums", wheel_sha256(world, "ada/sums", "2.0.0"))
    id = newer.begin(version="2.0.0", visibility="public")["id"]
    newer.send(id, lines([record(n, 0, 0.0, wheel=newer.wheel) for n in range(2)]))
    newer.complete(id)
    rows = board(push)
    assert [(row["version"], row["is_latest"]) for row in rows] == [("1.0.0", False), ("2.0.0", True)]
    assert [row["version"] for row in board(push, version="2.0.0")] == ["2.0.0"]


def test_what_is_private_open_or_dirty_is_not_ranked(push: Pusher) -> None:
    push.push([[1.0], [1.0]], model="private")
    id = push.begin(model="open", visibility="public")["id"]
    push.send(id, lines([record(n, model="open", wheel=push.wheel) for n in range(2)]))
    dirty = push.begin(model="dirty", dirty=True, visibility="public")["id"]
    push.send(dirty, lines([record(n, model="dirty", wheel=push.wheel) for n in range(2)]))
    push.complete(dirty)
    assert board(push) == []
    assert push.get("/projects/ada/sums/leaderboard")["rows"] == []  # nor for whoever pushed them


def test_results_of_other_arguments_are_not_ranked_together(push: Pusher) -> None:
    push.push([[0.0], [1.0]], model="a", visibility="public")
    push.push([[1.0], [1.0]], model="b", visibility="public", run={"env_args": {"digits": 1}})
    answer = push.get("/projects/ada/sums/leaderboard")
    assert [row["model"] for row in answer["rows"]] == ["a"] and answer["setup"] == ""
    easy = next(setup for setup in answer["setups"] if setup["id"])
    assert easy["env_args"] == {"digits": 1} and easy["n_evaluations"] == 1
    assert [row["model"] for row in board(push, setup=easy["id"])] == ["b"]


def test_the_leaderboard_of_a_private_project_is_its_members_alone(world: World, client: TestClient) -> None:
    push = pusher(world, client, world.user("ada"))
    push.push([[1.0], [0.0]], visibility="project")
    assert client.get("/api/v1/projects/ada/sums/leaderboard").status_code == 404
    assert len(push.get("/projects/ada/sums/leaderboard")["rows"]) == 1
