"""`GymEnv`: an environment of Gymnasium, or any class with `reset` and `step`, played in text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from verifiers.adapters.extras import require
from verifiers.adapters.games import GameEnv, sum_of_step_rewards
from verifiers.calls import AuthorCall
from verifiers.decorators import cleanup, stop
from verifiers.errors import ConfigError
from verifiers.parsers import MaybeThinkParser, Parser
from verifiers.rubrics import Rubric
from verifiers.types import Message, State, UserMessage

MAX_EPISODE_STEPS = 100


class GymEnv(GameEnv):
    """Each row is an episode: the first observation is the question, every reply is an action.

        env = vf.GymEnv("FrozenLake-v1", env_kwargs={"render_mode": "ansi", "is_slippery": False},
                        system_prompt="Reply with one digit: 0 left, 1 down, 2 right, 3 up.")

    `env_cls` is an id that Gymnasium knows, or a class or function that makes an environment when it is called with
    `env_kwargs`; then Gymnasium itself is not needed. `step` may return four values or five, `reset` one or two.

    The action is read from `parser.parse_answer` by `action_parser`, which raises ValueError when there is none;
    without it, the action space says how: a number for Discrete, the text for Text, a JSON list for the others. A
    reply that is no action is told to the model and counts as a step. `obs_to_text` words an observation; without it,
    an environment with `render_mode="ansi"` is shown as it renders itself, text as it is, everything else as JSON.

    The reward is the sum of the steps' rewards, unless `rubric` says otherwise. The steps of a rollout are at most
    `max_episode_steps`; the last one is still taken.
    """

    def __init__(
        self,
        env_cls: str | Callable[..., Any],
        env_kwargs: Mapping[str, Any] | None = None,
        action_parser: Callable[[str], Any] | None = None,
        obs_to_text: Callable[[Any], str] | None = None,
        num_train_episodes: int = 1000,
        num_eval_episodes: int = 20,
        max_episode_steps: int | None = None,
        seed: int = 0,
        parser: Parser | None = None,
        rubric: Rubric | None = None,
        **kwargs: Any,
    ) -> None:
        if isinstance(env_cls, str):
            require("gymnasium", "gymnasium", "GymEnv")
        if num_train_episodes <= 0 and num_eval_episodes <= 0:
            raise ConfigError("GymEnv needs num_train_episodes or num_eval_episodes above 0")
        self.env_cls, self.env_kwargs = env_cls, dict(env_kwargs or {})
        self.action_parser, self._obs_to_text = action_parser, obs_to_text
        first_eval = seed + max(num_train_episodes, 0)
        parser = parser or MaybeThinkParser()
        super().__init__(
            dataset=self._episodes(seed, num_train_episodes),
            eval_dataset=self._episodes(first_eval, num_eval_episodes),
            parser=parser,
            rubric=rubric or Rubric([sum_of_step_rewards], parser=parser),
            max_turns=kwargs.pop("max_turns", None) or max_episode_steps or MAX_EPISODE_STEPS,
            **kwargs,
        )

    # ---- for authors ----

    def make_game(self) -> Any:
        """A new environment, before its reset."""
        if callable(self.env_cls):
            return self.env_cls(**self.env_kwargs)
        import gymnasium

        return gymnasium.make(self.env_cls, **self.env_kwargs)

    def obs_to_text(self, obs: Any) -> str:
        """An observation in words."""
        if self._obs_to_text is not None:
            return self._obs_to_text(obs)
        return obs if isinstance(obs, str) else json.dumps(obs, default=_plain)

    def parse_action(self, text: str, game: Any) -> Any:
        """The action that a reply means. Raises ValueError, whose text the model is told."""
        if self.action_parser is not None:
            return self.action_parser(text)
        return action_in(text, getattr(game, "action_space", None))

    # ---- the loop ----

    async def setup_state(self, state: State) -> State:
        state["gym_env"], shown = await self._begin_call.invoke((int(state["info"]["seed"]),), {})
        state["gym_done"] = False
        if shown != state["input"].get("question"):  # a reset that its seed does not fix
            state["prompt"] = [*state["prompt"][:-1], UserMessage(shown)]
        return state

    async def env_response(self, messages: list[Message], state: State, **kwargs: Any) -> list[Message]:
        turn, game = state["trajectory"][-1], state["gym_env"]
        turn["reward"] = 0.0
        try:
            action = self.parse_action(str(self.parser.parse_answer(messages) or ""), game)
        except (ValueError, TypeError, LookupError) as error:
            state["gym_invalid_actions"] = state.get("gym_invalid_actions", 0) + 1
            return [UserMessage(f"That is no action: {error}")]
        shown, turn["reward"], state["gym_done"], info = await self._step_call.invoke((game, action), {})
        turn["extras"]["gym_info"] = info
        return [UserMessage(shown)]

    @stop(priority=10)
    async def is_done(self, state: State, **kwargs: Any) -> bool:
        return bool(state.get("gym_done"))

    @cleanup
    async def close_game(self, state: State) -> None:
        close = getattr(state.pop("gym_env", None), "close", None)
        if close is not None:
            close()

    def _episodes(self, first_seed: int, count: int) -> Callable[[], list[dict[str, Any]]] | None:
        """Rows, made when they are asked for: they take a reset each."""
        if count <= 0:
            return None

        def rows() -> list[dict[str, Any]]:
            game = self.make_game()
            try:
                seeds = range(first_seed, first_seed + count)
                return [{"question": self._reset(game, seed), "info": {"seed": seed}} for seed in seeds]
            finally:
                _close(game)

        return rows

    def _begin(self, seed: int) -> tuple[Any, str]:
        game = self.make_game()
        return game, self._reset(game, seed)

    def _reset(self, game: Any, seed: int) -> str:
        out = game.reset(seed=seed)
        return self._shown(game, out[0] if isinstance(out, tuple) and len(out) == 2 else out)

    def _step(self, game: Any, action: Any) -> tuple[str, float, bool, Any]:
        out = game.step(action)
        if len(out) == 4:
            obs, reward, is_over, info = out
        else:
            obs, reward, has_ended, was_cut, info = out
            is_over = has_ended or was_cut
        return self._shown(game, obs), float(reward), bool(is_over), info

    def _shown(self, game: Any, obs: Any) -> str:
        is_worded = self._obs_to_text is not None or type(self).obs_to_text is not GymEnv.obs_to_text
        if not is_worded and getattr(game, "render_mode", None) == "ansi":
            return without_colours(game.render())
        return self.obs_to_text(obs)

    # an environment that is slow moves to threads, as all author code that blocks

    @cached_property
    def _begin_call(self) -> AuthorCall:
        return AuthorCall(self._begin)

    @cached_property
    def _step_call(self) -> AuthorCall:
        return AuthorCall(self._step)


def action_in(text: str, space: Any) -> Any:
    """The action of `space` that `text` names. Raises ValueError, saying what is expected.

    >>> action_in("I go left: 3", None)
    'I go left: 3'
    """
    kind = type(space).__name__
    text = text.strip()
    if space is None or kind == "Text":
        action: Any = text
    elif kind == "Discrete":
        numbers = set(re.findall(r"-?\d+", text))
        if len(numbers) != 1:
            raise ValueError(f"reply with one number from {space.start} to {space.start + space.n - 1}")
        action = int(numbers.pop())
    else:
        import numpy

        try:
            action = numpy.asarray(json.loads(text), dtype=space.dtype)
        except (ValueError, TypeError):
            raise ValueError(f"reply with JSON that fits {space}") from None
    if space is not None and not space.contains(action):
        raise ValueError(f"{text!r} is not in {space}")
    return action


def without_colours(text: str) -> str:
    """What a terminal shows in colour, in brackets: in these games the colour is where the player stands.

    >>> without_colours("S\\x1b[41mF\\x1b[0mH")
    'S[F]H'
    """
    text = re.sub(r"\x1b\[[\d;]+m([^\x1b]+)\x1b\[0m", r"[\1]", text)
    return re.sub(r"\x1b\[[\d;]*m", "", text).strip("\n")


def _plain(value: Any) -> Any:
    """numpy's arrays and numbers, for JSON."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


def _close(game: Any) -> None:
    if hasattr(game, "close"):
        game.close()
