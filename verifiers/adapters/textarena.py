"""`TextArenaEnv`: the single-player games of TextArena."""

from __future__ import annotations

import copy
import difflib
import random
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from functools import cached_property
from types import ModuleType
from typing import Any

from verifiers.adapters.extras import require
from verifiers.adapters.games import GameEnv, sum_of_step_rewards
from verifiers.calls import AuthorCall
from verifiers.decorators import cleanup
from verifiers.errors import ConfigError, SetupError, one_line
from verifiers.parsers import MaybeThinkParser, Parser, XMLParser
from verifiers.rubrics import Rubric
from verifiers.types import Message, State, UserMessage

BIG = 1000  # elements; a container of so many that a game holds before it begins is a word list, not a position

SYSTEM_PROMPT = (
    "You play a game. Each time, think about your move first, inside <think>...</think>, then give the move alone, in "
    "the form that the game asks for, inside <guess>...</guess>."
)


class TextArenaEnv(GameEnv):
    """Each row is a game, begun from a seed of its own; the game's prompt is the question, every reply is a move.

        env = vf.TextArenaEnv("Mastermind-v0", num_train_examples=500, num_eval_examples=50)

    The move is what `parser` reads; from a reply without one, the game gets the whole text after the reasoning, and
    judges it by its own rules for broken moves. `feedback_fn` may rewrite what the game answers. The reward is the
    game's own, unless `rubric` says otherwise. `state["ta_env"]` is the game. Where a game has a secret word, it is
    the row's `answer`.

    Games take chance from the module `random`: each rollout has that of its own row, whatever others play meanwhile.
    """

    def __init__(
        self,
        game: str = "Wordle-v0",
        num_train_examples: int = 1000,
        num_eval_examples: int = 0,
        system_prompt: str | None = None,
        parser: Parser | None = None,
        rubric: Rubric | None = None,
        feedback_fn: Callable[[str], str] | None = None,
        seed: int = 0,
        game_kwargs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        require("textarena", "textarena", "TextArenaEnv")
        if num_train_examples <= 0 and num_eval_examples <= 0:
            raise ConfigError("TextArenaEnv needs num_train_examples or num_eval_examples above 0")
        self.game, self.game_kwargs = game, game_kwargs or {}
        self.feedback_fn = feedback_fn or str
        if parser is None:
            parser = XMLParser(["think", "guess"], answer_field="guess")
            system_prompt = SYSTEM_PROMPT if system_prompt is None else system_prompt
        first_eval = seed + max(num_train_examples, 0)
        super().__init__(
            dataset=self._games(seed, num_train_examples),
            eval_dataset=self._games(first_eval, num_eval_examples),
            system_prompt=system_prompt,
            parser=parser,
            rubric=rubric or Rubric([sum_of_step_rewards], parser=parser),
            **kwargs,
        )

    async def setup_state(self, state: State) -> State:
        played = await self._begin_call.invoke((int(state["info"]["seed"]),), {})
        state["ta_env"], state["ta_game"] = played.game, played
        return state

    async def env_response(self, messages: list[Message], state: State, **kwargs: Any) -> list[Message]:
        move = self.parser.parse_answer(messages) or MaybeThinkParser().parse_answer(messages)
        turn, played = state["trajectory"][-1], state["ta_game"]
        is_over = await self._move_call.invoke((played, str(move or "")), {})
        turn["reward"] = played.reward() if is_over else 0.0
        said: list[Message] = [UserMessage(self.feedback_fn(played.news))]
        if is_over:
            state["final_env_response"] = [UserMessage(played.reason or said[0]["content"])]
        return said

    @cleanup
    async def forget_game(self, state: State) -> None:
        state.pop("ta_env", None)
        state.pop("ta_game", None)

    def _games(self, first_seed: int, count: int) -> Callable[[], list[dict[str, Any]]] | None:
        """Rows, made when they are asked for: each game is begun once for its prompt."""
        if count <= 0:
            return None
        return lambda: [self._row(seed) for seed in range(first_seed, first_seed + count)]

    def _row(self, seed: int) -> dict[str, Any]:
        played = self._begin(seed)
        return {"question": played.news, "answer": played.secret_word, "info": {"seed": seed}}

    def _begin(self, seed: int) -> Played:
        with _one_at_a_time:
            if self._prototype is None:
                self._prototype = Prototype(_made(self.game, self.game_kwargs))
            game = self._prototype.copy()
        return Played(game, seed, self.game)

    _prototype: Prototype | None = None

    @cached_property
    def _begin_call(self) -> AuthorCall:
        return AuthorCall(self._begin)

    @cached_property
    def _move_call(self) -> AuthorCall:
        return AuthorCall(Played.move)


class Played:
    """One game that is being played. `news` is what the player was told last."""

    def __init__(self, game: Any, seed: int, name: str) -> None:
        self.game = game
        self._chance = random.Random(seed).getstate()
        with self._own_chance():
            try:
                game.reset(num_players=1, seed=seed)
            except AssertionError as error:
                raise ConfigError(f"the game '{name}' is not for a single player: {one_line(error)}") from error
        self._core = game
        while hasattr(self._core, "env"):  # wrappers repeat the whole history in every observation
            self._core = self._core.env
        self.news = self._told()

    def move(self, action: str) -> bool:
        """Makes it; True when the game is over."""
        with self._own_chance():
            is_over, _ = self.game.step(action=action)
        self.news = self._told()
        return bool(is_over)

    def reward(self) -> float:
        rewards, _ = self.game.close()
        return float((rewards or {}).get(0, 0.0))

    @property
    def reason(self) -> str:
        """Why the game ended, in its words."""
        return str(self._core.state.game_info[0].get("reason") or "")

    @property
    def secret_word(self) -> str:
        position = self._core.state.game_state
        known = position if isinstance(position, dict) else {}
        return str(known.get("secret_word") or known.get("target_word") or "")

    def _told(self) -> str:
        from textarena import ObservationType  # pyright: ignore[reportMissingImports]

        _, observations = self._core.get_observation()
        mine = ObservationType.PLAYER_ACTION
        return "\n".join(text for _, text, kind in observations if kind is not mine).strip()

    @contextmanager
    def _own_chance(self) -> Iterator[None]:
        """`random` as if nobody else used it. Games draw from the module's own generator, and seed it."""
        with _one_at_a_time:
            others = random.getstate()
            random.setstate(self._chance)
            try:
                yield
            finally:
                self._chance = random.getstate()
                random.setstate(others)


_one_at_a_time = threading.Lock()  # guards `random`, while it is a game's, and the making of prototypes


def _made(name: str, options: dict[str, Any]) -> Any:
    """A new game. Raises ConfigError for one that does not exist, SetupError when it cannot load its data."""
    with warnings.catch_warnings(), redirect_stdout(sys.stderr):  # the library's downloads talk
        warnings.simplefilter("ignore")
        import textarena  # pyright: ignore[reportMissingImports]
        from textarena.envs.registration import ENV_REGISTRY  # pyright: ignore[reportMissingImports]

        if name not in ENV_REGISTRY:
            near = ", ".join(difflib.get_close_matches(name, ENV_REGISTRY, n=3, cutoff=0.5))
            raise ConfigError(f"TextArena has no game '{name}'" + (f". Is one of these meant: {near}?" if near else ""))
        try:
            return textarena.make(name, **options)
        except LookupError as error:  # what nltk raises
            raise SetupError(
                f"the game '{name}' needs word lists of nltk, which are not on this machine and could not be fetched. "
                "Try: python -m nltk.downloader words averaged_perceptron_tagger_eng"
            ) from error


class Prototype:
    """A game as it was made, never begun: making one may read long word lists, and a deep copy would copy them."""

    def __init__(self, game: Any) -> None:
        self.game = game
        self._big = _big_containers(game, set())

    def copy(self) -> Any:
        """Long lists are copied one level deep, since a game may shuffle its own; other big containers are shared."""
        return copy.deepcopy(self.game, {id(big): list(big) if type(big) is list else big for big in self._big})


def _big_containers(value: Any, seen: set[int]) -> list[Any]:
    if id(value) in seen or isinstance(value, (str, bytes, type, ModuleType)) or callable(value):
        return []
    seen.add(id(value))
    if isinstance(value, (list, tuple, set, frozenset, dict)):
        if len(value) > BIG:
            return [value]
        inner = value.values() if isinstance(value, dict) else value
    else:
        inner = getattr(value, "__dict__", {}).values()
    return [big for item in inner for big in _big_containers(item, seen)]
