"""`textarena_chess`: chess between two actors, in the forms of TextArena."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import chess

import verifiers as vf
from textarena_chess.game import SIDES, ChessGame, drawn_opening
from textarena_chess.players import OPPONENTS, Player, careful_move
from verifiers.envs.multiturn_env import add_usage

SELF = "self"  # the opponent is the rollout's own model
MODEL = "model"  # the opponent is a model of its own
OPPONENT = "opponent"  # its name among the record's actors
PARSER = vf.MaybeThinkParser()
SYSTEM_PROMPT = "You play chess. Think as long as you need, then give one move in square brackets."


def load_environment(
    opponent: str = SELF,
    eval_opponent: str = "random",
    num_train_examples: int = 1000,
    num_eval_examples: int = 20,
    seed: int = 0,
    max_plies: int = 100,
    opponent_model: str | None = None,
    opponent_client: Any = None,
    system_prompt: str = SYSTEM_PROMPT,
) -> vf.Environment:
    """One game a row, the model's side drawn. See the README for the arguments."""
    known = (SELF, MODEL, *OPPONENTS)
    for name, value in (("opponent", opponent), ("eval_opponent", eval_opponent)):
        if value not in known:
            raise ValueError(f"{name}={value!r}: give one of {', '.join(known)}")
        if value == MODEL and opponent_model is None:
            raise ValueError(f"{name}='model' is given without opponent_model: name the model that plays")
    counts = {"num_train_examples": num_train_examples, "num_eval_examples": num_eval_examples, "max_plies": max_plies}
    for name, value in counts.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ValueError(f"{name}={value!r}: give a whole number, 1 or more")
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise ValueError(f"seed={seed!r}: give a whole number")
    return ChessEnv(
        max_plies=max_plies,
        opponent_model=opponent_model,
        opponent_client=opponent_client,
        dataset=lambda: [make_row("train", seed, n, opponent, max_plies) for n in range(num_train_examples)],
        eval_dataset=lambda: [make_row("eval", seed, n, eval_opponent, max_plies) for n in range(num_eval_examples)],
        system_prompt=system_prompt,
        parser=PARSER,
        rubric=vf.Rubric(
            [game_reward, assistant_reward, opponent_reward, checkmate, invalid_moves, plies],
            [1.0, 0.0, 0.0, 0.0, 0.0, 0.0],
        ),
    )


def make_row(split: str, seed: int, index: int, opponent: str, max_plies: int) -> dict[str, Any]:
    """A game that is begun: the model's side in turn, a few moves made by chance, and it is the model's turn."""
    rng = random.Random(f"chess/{split}/{seed}/{index}")
    side = SIDES[index % 2]
    opening = drawn_opening(rng, side)
    info = {"side": side, "opponent": opponent, "opening": opening, "seed": rng.randrange(2**31), "source": "drawn"}
    return {"question": ChessGame(opening, max_plies).prompt(side), "info": info}


class ChessEnv(vf.MultiTurnEnv):
    """Each side has a conversation of its own, and sees the other's moves as the game's messages.

    The opponent's turns stand in the trajectory as those of the actor `opponent`. When the game is over, every turn
    gets the reward of the side that made it.
    """

    def __init__(self, *, max_plies: int, opponent_model: str | None, opponent_client: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.max_plies, self.opponent_model, self.opponent_client = max_plies, opponent_model, opponent_client

    async def setup_state(self, state: vf.State) -> None:
        info = state["info"]
        game = state["game"] = ChessGame(list(info["opening"]), self.max_plies)
        player = OPPONENTS.get(info["opponent"])
        if player is not None:
            state["opponent_client"], state["opponent_model"] = scripted(player, game, info["seed"]), info["opponent"]
        elif info["opponent"] == MODEL:
            state["opponent_client"], state["opponent_model"] = self.opponent_client, self.opponent_model
        else:
            state["opponent_client"], state["opponent_model"] = None, None
        state["opponent_messages"] = [vf.SystemMessage(self.system_prompt)] if self.system_prompt else []
        state["opponent_has_played"] = False

    async def env_response(self, messages: vf.Messages, state: vf.State, **kwargs: Any) -> vf.Messages:
        game: ChessGame = state["game"]
        wrong = game.play(str(PARSER.parse_answer(messages) or ""))
        if wrong and game.rewards is None:
            return [vf.UserMessage(again(wrong))]
        while game.rewards is None and game.side != state["info"]["side"]:
            await self._ask_opponent(state, game)
        if game.rewards is not None:
            state["final_env_response"] = [vf.UserMessage(f"The game is over: {game.reason}.")]
            return state["final_env_response"]
        return [vf.UserMessage(game.position())]

    async def _ask_opponent(self, state: vf.State, game: ChessGame) -> None:
        """One reply of the opponent, in its own conversation, as a step of its own in the trajectory."""
        view: list[Any] = state["opponent_messages"]
        if not view or view[-1]["role"] != "user":
            shown = game.position() if state["opponent_has_played"] else game.prompt(game.side)
            view = [*view, vf.UserMessage(shown)]
        response = await self.get_model_response(
            state, view, client=state["opponent_client"], model=state["opponent_model"]
        )
        step = vf.TrajectoryStep.over(
            view,
            completion=[response.message],
            response=response,
            reward=None,
            advantage=None,
            is_truncated=response.is_truncated,
            trajectory_id=f"{state['trajectory_id']}-{OPPONENT}",
            extras={"actor": OPPONENT},
        )
        if response.usage is not None and state["info"]["opponent"] not in OPPONENTS:
            add_usage(state, response.usage)
        await self.add_trajectory_step(state, step)
        wrong = game.play(str(PARSER.parse_answer([response.message]) or ""))
        state["opponent_has_played"] = True
        state["opponent_messages"] = [*view, response.message, *([vf.UserMessage(again(wrong))] if wrong else [])]

    async def post_rollout(self, state: vf.State) -> None:
        """Also where the game was not played to its end: then the model has lost it."""
        game: ChessGame = state["game"]
        side = state["info"]["side"]
        if game.rewards is None:
            game.end(side, -1.0, "the game was not played to its end")
        rewards = game.rewards or {}
        other = SIDES[1 - SIDES.index(side)]
        state["chess"] = {
            "rewards": {"assistant": rewards[side], OPPONENT: rewards[other]},
            "reason": game.reason,
            "plies": game.plies,
            "invalid_moves": game.invalid_moves[side],
            "moves": [move.uci() for move in game.board.move_stack],
        }
        for step in state["trajectory"]:
            step["reward"] = state["chess"]["rewards"][step["extras"].get("actor", "assistant")]

    @vf.cleanup(priority=-1)
    async def forget_game(self, state: vf.State) -> None:
        state.pop("game", None)
        state.pop("opponent_client", None)


def again(wrong: str) -> str:
    return f"That was no valid move: {wrong}. Another one loses the game."


def scripted(player: Player, game: ChessGame, seed: int) -> vf.ScriptedClient:
    """A client that plays, so that every kind of opponent is asked in the same way."""
    rng = random.Random(seed)
    return vf.ScriptedClient(lambda request: f"[{player(game.board.copy(), rng).uci()}]")


def reference_reply(messages: vf.Messages, row: Mapping[str, Any]) -> str:
    """A player that looks two moves ahead, from the moves that were shown; `vf-validate` asks for it."""
    info = row["info"]
    board = chess.Board()
    for move in info["opening"]:
        board.push_uci(move)
    told, *later = [message for message in messages if message["role"] != "system"]
    if f"You are playing {info['side'].title()} " not in told["content"]:  # in self-play it is on both sides
        later = [told, *later]
    for message in later:
        text = message["content"]
        is_own = message["role"] == "assistant"
        board.push_uci(text.strip("[]") if is_own else text.partition("The last move was ")[2].partition(".")[0])
    return f"[{careful_move(board, random.Random(len(messages))).uci()}]"


# Rewards


def game_reward(state: vf.State, info: Mapping[str, Any]) -> float:
    """The model's own; in self-play, where it is on both sides, the mean of both, so that neither side is favoured."""
    rewards = state["chess"]["rewards"]
    value = sum(rewards.values()) / 2 if info["opponent"] == SELF else rewards["assistant"]
    return vf.Graded(value, state["chess"]["reason"])


def assistant_reward(state: vf.State) -> float:
    return state["chess"]["rewards"]["assistant"]


def opponent_reward(state: vf.State) -> float:
    return state["chess"]["rewards"][OPPONENT]


def checkmate(state: vf.State) -> float:
    """Whether the model gave it."""
    return float(state["chess"]["reason"] == "checkmate" and assistant_reward(state) > 0)


def invalid_moves(state: vf.State) -> float:
    return float(state["chess"]["invalid_moves"])


def plies(state: vf.State) -> float:
    return float(state["chess"]["plies"])
