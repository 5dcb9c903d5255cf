"""`textarena_wordle`: the Wordle of TextArena, through `vf.TextArenaEnv`."""

from __future__ import annotations

import logging
import re
from functools import cache
from pathlib import Path
from typing import Any

import verifiers as vf

logger = logging.getLogger(__name__)

GAME = "Wordle-v0-verifiers"  # the name under which TextArena's registry gets it
WORDS_FILE = Path(__file__).with_name("words.txt")
SYSTEM_PROMPT = (
    "You play Wordle. Each turn, you may think inside <think>...</think>; then give one word in square brackets inside "
    "<guess>...</guess>, as in <guess>[stone]</guess>."
)
PARSER = vf.XMLParser(["think", "guess"], answer_field="guess")


def load_environment(
    num_train_examples: int = 1000,
    num_eval_examples: int = 50,
    seed: int = 0,
    num_guesses: int = 6,
    hardcore: bool = False,
    system_prompt: str = SYSTEM_PROMPT,
) -> vf.Environment:
    """One hidden word a game. See the README for the arguments."""
    for name, value in (("num_train_examples", num_train_examples), ("num_eval_examples", num_eval_examples)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ValueError(f"{name}={value!r}: give a whole number, 1 or more")
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise ValueError(f"seed={seed!r}: give a whole number")
    if not isinstance(num_guesses, int) or isinstance(num_guesses, bool) or not 1 <= num_guesses <= 12:
        raise ValueError(f"num_guesses={num_guesses!r}: give a whole number from 1 to 12")
    if not isinstance(hardcore, bool):
        raise ValueError(f"hardcore={hardcore!r}: give true (rarer words) or false")
    env = vf.TextArenaEnv(
        GAME,
        num_train_examples=num_train_examples,
        num_eval_examples=num_eval_examples,
        system_prompt=system_prompt,
        parser=PARSER,
        rubric=vf.Rubric([solved, game_reward, guesses], [1.0, 0.2, 0.0], parser=PARSER),
        seed=seed,
        game_kwargs={"word_length": 5, "num_guesses": num_guesses, "hardcore": hardcore},
    )
    register_game()
    return env


def solved(state: vf.State) -> float:
    """Whether the last guess was the word: the game pays 1 for that alone."""
    return float(game_reward(state) == 1.0)


def game_reward(state: vf.State) -> float:
    """TextArena's own: 1 for the word, else the share of letters that the last guess had right, half for misplaced."""
    return float(sum(step["reward"] or 0.0 for step in state["trajectory"]))


def guesses(state: vf.State) -> float:
    """Replies with a word in square brackets."""
    said = [PARSER.parse_answer(step["completion"]) for step in state["trajectory"]]
    return float(sum(re.search(r"\[\w+\]", str(text or "")) is not None for text in said))


def reference_reply(messages: vf.Messages, row: dict[str, Any]) -> str:
    """What a player who knows the word writes; `vf-validate` asks for it."""
    return PARSER.format(think="I know it.", guess=f"[{row['answer']}]")


# The game, with words of our own where TextArena's cannot be had


def register_game() -> None:
    """Once in a process; TextArena keeps games by name."""
    from textarena.envs.registration import ENV_REGISTRY, register  # pyright: ignore[reportMissingImports]

    if GAME not in ENV_REGISTRY:
        register(GAME, make_game)


def make_game(**options: Any) -> Any:
    """TextArena's game; with a warning, its rules over our own words when nltk's lists are neither here nor fetched."""
    from textarena.envs.Wordle.env import WordleEnv  # pyright: ignore[reportMissingImports]

    try:
        return WordleEnv(**options)
    except LookupError:
        logger.warning(
            "nltk's word lists are not on this machine and could not be fetched: %d words of our own serve instead, "
            "any five letters are accepted as a guess, and SCORES ARE NOT THOSE OF TextArena's Wordle. Try: python -m "
            "nltk.downloader words averaged_perceptron_tagger_eng",
            len(own_words()),
        )
        return _own_game(WordleEnv)(**options)


@cache
def own_words() -> tuple[str, ...]:
    return tuple(WORDS_FILE.read_text(encoding="ascii").split())


@cache
def _own_game(wordle: type[Any]) -> type[Any]:
    """TextArena's class with another way to get at its words; made here, since importing it is slow."""

    class OwnWordle(wordle):  # type: ignore[misc,valid-type]
        def __init__(self, word_length: int, num_guesses: int, hardcore: bool) -> None:
            self.word_length, self.num_guesses = word_length, num_guesses
            self.word_list = list(own_words())

        def _check_word(self, word: str) -> bool:
            return word.isascii() and word.isalpha()

    return OwnWordle
