"""Pass rates of examples: seeds for a curriculum, and a sign of what is broken."""

from __future__ import annotations

from typing import Any

import pytest
from hub_evaluations import Pusher, pusher
from hub_world import World
from starlette.testclient import TestClient

from verifiers.statistics import share_interval

PATH = "/projects/ada/sums/pass-rates"


@pytest.fixture
def push(world: World, client: TestClient) -> Pusher:
    return pusher(world, client, world.user("ada"), visibility="public")


def flags(push: Pusher) -> dict[int, list[str]]:
    return {example["example_id"]: example["flags"] for example in push.get(PATH)["examples"]}


def test_rates_are_counted_over_all_evaluations_of_the_release(push: Pusher) -> None:
    push.push([[1.0, 0.0], [0.0, 0.0]], model="a")
    push.push([[1.0, None], [0.25, 0.75]], model="b")
    found = push.get(PATH)
    assert (found["version"], found["n_evaluations"], found["models"]) == ("1.0.0", 2, ["a", "b"])
    first, second = found["examples"]
    interval = share_interval(2, 3)
    assert interval is not None
    assert first == {
        "example_id": 0, "n": 4, "n_scored": 3, "n_passed": 2, "pass_rate": 2 / 3, "low": interval.low,
        "high": interval.high, "mean_reward": 2 / 3, "n_models": 2, "flags": [],
    }  # fmt: skip
    assert (second["n_passed"], second["mean_reward"]) == (1, 0.25)
    assert push.get(PATH, model="b")["examples"][1]["pass_rate"] == 0.5


def test_the_runs_own_threshold_decides_what_passes(push: Pusher) -> None:
    push.push([[0.25], [0.75]], pass_threshold=0.2)
    push.push([[0.25], [0.75]], run={"pass_threshold": 0.9})
    push.push([[0.25], [0.75]], run={"pass_threshold": "high"})  # 0.5, as ever
    assert [example["n_passed"] for example in push.get(PATH)["examples"]] == [1, 2]


def test_examples_come_page_by_page(push: Pusher) -> None:
    push.push([[float(n % 2)] for n in range(7)])
    seen: list[int] = []
    query: dict[str, Any] = {"limit": 3}
    while True:
        found = push.get(PATH, **query)
        seen += [example["example_id"] for example in found["examples"]]
        if found["next_after"] is None:
            break
        query["after"] = found["next_after"]
    assert seen == list(range(7))


def test_examples_that_all_or_none_pass_are_flagged_once_there_are_enough_tries(push: Pusher) -> None:
    push.push([[0.0] * 4, [1.0] * 4, [1.0, 0.0] * 2], model="a")
    assert flags(push) == {0: [], 1: [], 2: []}
    push.push([[0.0] * 4, [1.0] * 4, [1.0, 0.0] * 2], model="b")
    assert flags(push) == {0: ["never_passed"], 1: ["always_passed"], 2: []}


def test_an_example_whose_grader_fails_is_flagged(push: Pusher) -> None:
    push.push([[None, None, 1.0], [1.0, 1.0, None]])
    assert flags(push) == {0: ["often_unscored"], 1: []}


def test_an_example_that_only_weaker_models_pass_is_flagged(push: Pusher) -> None:
    """Its stored answer is what a weak model would say."""
    for strength, model in enumerate(("tiny", "small", "medium", "large")):
        others = [[1.0 if n < 2 * strength else 0.0] for n in range(6)]
        push.push([*others, [0.0 if strength >= 2 else 1.0]], model=model)
    found = flags(push)
    assert found.pop(6) == ["inverted"]
    assert all("inverted" not in flagged for flagged in found.values())


def test_results_of_other_arguments_and_private_ones_of_others_are_left_out(push: Pusher, world: World) -> None:
    push.push([[1.0], [0.0]], run={"env_args": {"digits": 2}})
    push.push([[1.0], [0.0]])
    assert push.get(PATH)["n_evaluations"] == 1
    bob = world.user("bob")
    answer = push.client.get(f"/api/v1{PATH}", headers=bob.headers)
    assert answer.json()["examples"] == [] and answer.json()["n_evaluations"] == 0


def test_a_version_that_is_not_there_is_not_found(push: Pusher) -> None:
    push.get(PATH, version="9.9", expect=404)
