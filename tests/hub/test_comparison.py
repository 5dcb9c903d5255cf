"""Two evaluations example by example: the difference is paired, and says what else differs than the model."""

from __future__ import annotations

import pytest
from hub_evaluations import Pusher, lines, pusher, record
from hub_packages import Package
from hub_world import World
from starlette.testclient import TestClient

from verifiers.statistics import paired_difference

BEFORE = [[1.0, 0.0], [0.0, 0.0], [1.0, 1.0], [None, None]]
AFTER = [[1.0, 1.0], [1.0, 1.0], [0.0, 0.0], [1.0, 1.0]]


@pytest.fixture
def push(world: World, client: TestClient) -> Pusher:
    return pusher(world, client, world.user("ada"), visibility="public")


def flat(rewards: list[list[float | None]]) -> list[tuple[int, float | None]]:
    return [(example_id, reward) for example_id, tries in enumerate(rewards) for reward in tries]


def test_the_difference_is_that_of_the_statistics(push: Pusher) -> None:
    a, b = push.push(BEFORE), push.push(AFTER, model="large")
    found = push.get(f"/evaluations/{a}/compare/{b}")
    expected = paired_difference(flat(BEFORE), flat(AFTER))
    assert found["difference"]["mean"] == expected.mean
    assert found["difference"]["interval"] == {"low": expected.interval.low, "high": expected.interval.high}
    assert found["difference"]["n_only_candidate"] == 1
    assert found["counts"] == {"gained": 1, "lost": 1, "both_pass": 1, "both_fail": 0, "not_comparable": 1}


def test_examples_come_by_bucket_and_page_the_largest_difference_first(push: Pusher) -> None:
    a, b = push.push(BEFORE), push.push(AFTER)
    path = f"/evaluations/{a}/compare/{b}"
    changed = push.get(path, bucket="changed")["examples"]
    assert [(pair["example_id"], pair["difference"]) for pair in changed] == [(1, 1.0), (2, -1.0)]
    assert [try_["reward"] for try_ in changed[0]["candidate"]["tries"]] == [1.0, 1.0]
    first = push.get(path, limit=3)
    assert first["next_offset"] == 3 and len(push.get(path, limit=3, offset=3)["examples"]) == 1
    assert push.get(path, bucket="luck", expect=400)["code"] == "bad_bucket"


def test_what_else_differs_is_said(push: Pusher) -> None:
    a = push.push(BEFORE)
    b = push.begin(run={"env_args": {"digits": 2}, "sampling_args": {"temperature": 0.2}})["id"]
    made = [record(n, 0, wheel=push.wheel, question="Another?" if n else "") for n in range(2)]
    push.send(b, lines(made))
    said = " ".join(push.get(f"/evaluations/{a}/compare/{b}")["cautions"])
    assert "different arguments" in said and "sampling" in said and "still being pushed" in said
    assert "1 examples of equal number begin with different questions" in said


def test_evaluations_of_two_environments_are_not_compared(push: Pusher, world: World, client: TestClient) -> None:
    world.release("ada/products", package=Package("products"), visibility="public")
    other = pusher(world, client, push.person, "ada/products")
    id = other.begin()["id"]
    other.send(id, lines([record(0, env="products", wheel=other.wheel)]))
    assert push.get(f"/evaluations/{push.push([[1.0]])}/compare/{id}", expect=422)["code"] == "not_comparable"


def test_both_must_be_seen(push: Pusher, world: World, client: TestClient) -> None:
    shown, hidden = push.push([[1.0]], visibility="public"), push.push([[1.0]])
    bob = world.user("bob")
    for path in (f"{shown}/compare/{hidden}", f"{hidden}/compare/{shown}"):
        assert client.get(f"/api/v1/evaluations/{path}", headers=bob.headers).status_code == 404
