"""Are bad arguments refused, does a seed give the same games, does an example have the right shape, does good play win,
and does play that is none lose? Are both sides of self-play sampled, each with its own reward?"""

from __future__ import annotations

import random
import re
import sys
from typing import Any

import pytest

pytest.importorskip("chess", reason="needs the package 'chess'")

import chess
from textarena_chess import OPPONENT, load_environment, reference_reply
from textarena_chess.game import ChessGame, drawn_opening
from textarena_chess.players import careful_move, greedy_move

import verifiers as vf
from verifiers.rl.sample_policy import SamplePolicy
from verifiers.rl.samples import samples_of_group
from verifiers.rl.types import PolicyRollout, RolloutGroup
from verifiers.run import Run

FOOLS_MATE = ["f2f3", "e7e5", "g2g4"]  # black mates by d8h4


def rewards_after(moves: list[str], max_plies: int = 100) -> dict[str, float] | None:
    game = ChessGame([], max_plies)
    for move in moves:
        assert game.play(f"[{move}]") is None
    return game.rewards


async def played(env: vf.Environment, rows: list[Any], reply: Any, **options: Any) -> list[Any]:
    return (await env.generate(rows, vf.ScriptedClient(reply), "scripted", **options))["outputs"]


def by_reference(row: Any) -> Any:
    return lambda request: reference_reply(request.messages, row)


def first_valid(request: Any) -> str:
    """The first of the moves that were shown last."""
    shown = next(m["content"] for m in reversed(request.messages) if "Valid moves" in m["content"])
    return f"<think>[e2e4]?</think>I play [{re.findall(r'Valid moves: .([a-h1-8qrbn]+)', shown)[-1]}]"


# 1. bad arguments are refused


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"opponent": "stockfish"}, "opponent='stockfish': give one of self, model, random, greedy, careful"),
        ({"eval_opponent": "model"}, "eval_opponent='model' is given without opponent_model"),
        ({"num_train_examples": 0}, "num_train_examples=0"),
        ({"max_plies": True}, "max_plies=True"),
        ({"seed": "0"}, "seed='0'"),
    ],
)
def test_a_bad_argument_is_refused_by_name(arguments, named):
    with pytest.raises(ValueError, match=named):
        load_environment(**arguments)


# 2. same seed, same games


def test_a_seed_gives_the_same_games_and_another_seed_others():
    def infos(seed: int) -> list[Any]:
        env = load_environment(seed=seed, num_train_examples=6, num_eval_examples=6)
        return [row["info"] for row in (*env.train_rows(), *env.eval_rows())]

    assert infos(1) == infos(1)
    assert infos(1) != infos(2)


async def test_the_same_moves_on_the_same_row_make_the_same_game():
    env = load_environment(num_eval_examples=2, max_plies=12)
    games = [
        [[message["content"] for message in output["completion"]] for output in outputs]
        for outputs in [await played(env, env.eval_rows(), first_valid) for _ in range(2)]
    ]
    assert games[0] == games[1]


# 3. an example has the right shape


def test_an_example_is_a_position_in_which_the_model_is_to_move():
    for number, row in enumerate(load_environment(num_eval_examples=8).eval_rows()):
        assert [message["role"] for message in row["prompt"]] == ["system", "user"]
        side = ("white", "black")[number % 2]
        game = ChessGame(row["info"]["opening"], 100)
        assert row["info"]["side"] == game.side == side
        assert f"You are playing {side.title()}" in row["prompt"][1]["content"]
        listed = re.findall(r"\[(\w+)\]", row["prompt"][1]["content"].partition("Valid moves")[2])
        assert sorted(listed) == sorted(move.uci() for move in game.board.legal_moves)


@pytest.mark.parametrize("side", ["white", "black"])
def test_openings_are_drawn_and_leave_the_side_to_move(side):
    openings = [tuple(drawn_opening(random.Random(seed), side)) for seed in range(30)]
    assert len(set(openings)) > 20
    assert all(ChessGame(list(opening), 10).side == side for opening in openings)


# 4. good play wins


async def test_the_reference_beats_a_player_by_chance():
    env = load_environment(num_eval_examples=4)
    for row in env.eval_rows():
        (output,) = await played(env, [row], by_reference(row))
        assert output["reward"] >= 0.5
        assert output.record.actors == ["assistant", OPPONENT]
        assert output["metrics"]["opponent_reward"] == -output["reward"]


def test_a_checkmate_wins_and_is_found():
    assert rewards_after([*FOOLS_MATE, "d8h4"]) == {"white": -1.0, "black": 1.0}
    board = chess.Board()
    for move in FOOLS_MATE:
        board.push_uci(move)
    assert {player(board, random.Random(n)).uci() for player in (greedy_move, careful_move) for n in range(3)} == {
        "d8h4"
    }


def test_a_careful_player_does_not_take_what_is_guarded():
    board = chess.Board("4k3/8/2p5/3p4/8/8/8/3QK3 w - - 0 1")
    assert greedy_move(board, random.Random(0)).uci() == "d1d5"
    assert careful_move(board, random.Random(0)).uci() != "d1d5"


# 5. other play does not


@pytest.mark.parametrize("reply", ["", "I resign.", "[e2e5]", "e2e4", "[a2a3] or [b2b3]", "<think>[a2a3]", "[a9a9]"])
async def test_two_replies_without_a_valid_move_lose(reply):
    env = load_environment(num_eval_examples=1)
    (output,) = await played(env, env.eval_rows(), reply)
    assert output["reward"] == -1.0
    assert output["metrics"]["invalid_moves"] == output["metrics"]["num_turns"] == 2.0
    assert "two invalid moves" in output.record.scores[0].reason


async def test_one_invalid_move_is_forgiven_and_a_valid_one_begins_anew():
    env = load_environment(num_eval_examples=1, max_plies=6)
    replies = iter(["hm", None, "hm", None, None])

    def reply(request: Any) -> str:
        return next(replies) or first_valid(request)

    (output,) = await played(env, env.eval_rows(), reply)
    assert output["metrics"]["invalid_moves"] == 2.0
    assert output["metrics"]["plies"] == 6.0


async def test_a_game_that_is_not_played_to_its_end_is_lost():
    env = load_environment(num_eval_examples=1)
    env.set_max_total_completion_tokens(8)  # type: ignore[attr-defined]
    (output,) = await played(env, env.eval_rows(), first_valid)
    assert output["reward"] == -1.0
    assert output.record.scores[0].reason == "the game was not played to its end"


def test_material_decides_when_the_moves_are_used_up():
    lead = ["e2e4", "d7d5", "e4d5", "d8d5", "b1c3", "d5e5", "f1e2", "e5e2"]  # black gives the queen for a bishop
    assert rewards_after([*lead, "d1e2"], max_plies=9) == {"white": 0.5, "black": -0.5}
    assert rewards_after(["e2e4", "d7d5", "e4d5"], max_plies=3) == {"white": 0.0, "black": 0.0}


# Self-play


async def self_play(reply: Any, tries: int = 2, **options: Any) -> list[vf.RolloutRecord]:
    env = load_environment(num_train_examples=1, **options)
    client = vf.ScriptedClient(reply, with_tokens=True)
    run = Run(env, env.train_rows(), client=client, model="scripted", rollouts_per_example=tries)
    return sorted(await run.execute(), key=lambda record: record.rollout_index)


async def test_in_self_play_one_model_is_asked_for_both_sides_each_in_its_own_conversation():
    (record,) = await self_play(first_valid, tries=1, max_plies=6)
    assert record.actors == ["assistant", OPPONENT]
    assert [turn.actor for turn in record.turns] == ["assistant", OPPONENT] * 3
    white, black = (next(turn for turn in record.turns if turn.actor == actor) for actor in record.actors)
    assert "You are playing White" in record.prompt[-1]["content"]
    assert white.prompt is None and black.prompt is not None
    assert "You are playing Black" in black.prompt[-1]["content"]
    assert not any("You are playing White" in message["content"] for message in black.prompt)


async def test_every_turn_has_the_reward_of_its_side_and_the_rollout_favours_neither():
    def loses_as_the_opponent(request: Any) -> str:
        return "no" if "playing Black" in request.messages[1]["content"] else first_valid(request)

    (record,) = await self_play(loses_as_the_opponent, tries=1)
    assert {(turn.actor, turn.reward) for turn in record.turns} == {("assistant", 1.0), (OPPONENT, -1.0)}
    assert record.reward == 0.0
    assert record.metrics["assistant_reward"] == 1.0 and record.metrics["opponent_reward"] == -1.0


async def test_both_sides_are_sampled_for_training_with_opposite_advantages():
    first_seed: list[int | None] = []

    def reply(request: Any) -> str:
        """In the first try black gives up, in the second white."""
        first_seed[:] = first_seed or [request.seed]
        is_first_try = request.seed == first_seed[0]
        is_black = "playing Black" in request.messages[1]["content"]
        gives_up = is_black == is_first_try and len(request.messages) > 2
        return "no" if gives_up else first_valid(request)

    records = await self_play(reply)
    rollouts = [
        PolicyRollout(record=record, rollout_id=str(n), dispatched_version=0, finished_version=0)
        for n, record in enumerate(records)
    ]
    group = RolloutGroup(env="chess", example_id=0, group_id="0", rollouts=rollouts)
    policy = SamplePolicy(actors=("assistant", OPPONENT), turn_reward_weight=1.0)
    found = samples_of_group(group, policy)
    assert set(found.by_actor()) == {"assistant", OPPONENT}
    signs = {
        (sample.rollout_id, sample.actor): {value > 0 for value in sample.advantages if value}
        for sample in found.samples
    }
    won = {record.rollout_index: record.metrics["assistant_reward"] or 0.0 for record in records}
    assert sorted(won.values()) == [-1.0, 1.0]
    for number, reward in won.items():
        assert signs[str(number), "assistant"] == {reward > 0}
        assert signs[str(number), OPPONENT] == {reward < 0}


async def test_a_model_of_its_own_may_be_the_opponent():
    other = vf.ScriptedClient(first_valid)
    env = load_environment(
        eval_opponent="model", opponent_model="other", opponent_client=other, num_eval_examples=1, max_plies=4
    )
    (output,) = await played(env, env.eval_rows(), first_valid)
    assert len(other.requests) == 2
    assert {request.model for request in other.requests} == {"other"}
    assert output["reward"] == output["metrics"]["assistant_reward"]


async def test_an_opponent_that_cannot_be_reached_leaves_the_game_unscored():
    down = vf.ScriptedClient(vf.ModelUnavailableError("down"))
    env = load_environment(eval_opponent="model", opponent_model="other", opponent_client=down, num_eval_examples=1)
    (output,) = await played(env, env.eval_rows(), first_valid)
    assert output["reward"] is None


@pytest.mark.skipif(sys.version_info < (3, 12), reason="TextArena's Chess does not compile before Python 3.12")
def test_moves_and_endings_are_those_of_textarena():
    pytest.importorskip("textarena", reason="needs the package 'textarena' to compare with")
    from textarena.envs.Chess.env import ChessEnv  # pyright: ignore[reportMissingImports]

    theirs = ChessEnv(max_turns=100)
    theirs.reset(num_players=2, seed=0)
    ours = ChessGame([], 100)
    for move in [*FOOLS_MATE, "d8h4"]:
        is_over, _ = theirs.step(f"[{move}]")
        ours.play(f"[{move}]")
        assert is_over == (ours.rewards is not None)
    assert theirs.state.rewards == {0: -1, 1: 1}
    assert ours.rewards == {"white": -1.0, "black": 1.0}
