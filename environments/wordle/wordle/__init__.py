"""`wordle`: find a hidden five-letter word; each guess is answered with a mark for every letter."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path
from typing import Any

import verifiers as vf
from wordle.game import Turn, closeness, turn_of

SYSTEM_PROMPT = """\
Find the hidden word. It has five letters, and you have {max_turns} turns.

Each turn, you may think in <think>...</think>; then write one guess in <guess>...</guess>.
I answer with a mark for each letter of your guess:
G: the hidden word has this letter in this position
Y: it has this letter in a different position
X: it does not have this letter (or not once more)

A reply without a guess of five letters, with several guesses, or with a guess made earlier costs a turn."""
FIRST_MESSAGE = "Make your first guess."
WORDS_FILE = Path(__file__).with_name("words.txt")
EVAL_SHARE = 4  # one word in four is for evaluation
PARSER = vf.XMLParser(["think", "guess"], answer_field="guess")


class WordleEnv(vf.MultiTurnEnv):
    @vf.stop(priority=1)  # before max_turns_reached: a word found at the last turn was found
    async def was_solved(self, state: vf.State) -> bool:
        return bool(solved(state))

    async def env_response(self, messages: vf.Messages, state: vf.State, **kwargs: Any) -> vf.Messages:
        """Never asked after the last turn, so the hidden word stays hidden."""
        turns = game_of(state)
        return [vf.UserMessage(f"{feedback(turns[-1])}\nTurns left: {self.max_turns - len(turns)}")]


def load_environment(
    num_train_examples: int = 1000,
    num_eval_examples: int = 50,
    max_turns: int = 6,
    seed: int = 0,
    system_prompt: str = SYSTEM_PROMPT,
) -> vf.Environment:
    """One hidden word a game. See the README for the arguments."""
    _check_count("num_train_examples", num_train_examples)
    _check_count("num_eval_examples", num_eval_examples)
    _check_count("max_turns", max_turns)
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise ValueError(f"seed={seed!r}: give a whole number")

    def turns_left(state: vf.State) -> float:
        return solved(state) * (1 - len(state["trajectory"]) / max_turns)

    rubric = vf.Rubric(
        funcs=[solved, best_guess, turns_left, valid_share, invalid_guesses],
        weights=[1.0, 0.2, 0.2, 0.05, 0.0],  # a lost game gets less than 0.25, a won one more than 1.2
        parser=PARSER,
    )
    return WordleEnv(
        dataset=lambda: rows("train", num_train_examples, seed),
        eval_dataset=lambda: rows("eval", num_eval_examples, seed),
        system_prompt=system_prompt.replace("{max_turns}", str(max_turns)),
        parser=PARSER,
        rubric=rubric,
        max_turns=max_turns,
    )


def game_of(state: vf.State) -> list[Turn]:
    """The game so far, read off the model's replies: no other state has to be kept in step with them."""
    turns: list[Turn] = []
    for step in state["trajectory"]:
        text = PARSER.assistant_texts(step["completion"])[-1]
        written = [PARSER.parse(text).guess, PARSER.parse(text, last=True).guess]
        turns.append(turn_of(written, turns, state["answer"]))
    return turns


def solved(state: vf.State) -> float:
    return float(any(turn.is_solved for turn in game_of(state)))


def best_guess(state: vf.State) -> float:
    return max((closeness(turn.marks) for turn in game_of(state)), default=0.0)


def valid_share(state: vf.State) -> float:
    turns = game_of(state)
    return sum(not turn.problem for turn in turns) / len(turns) if turns else 0.0


def invalid_guesses(state: vf.State) -> float:
    return float(sum(bool(turn.problem) for turn in game_of(state)))


def feedback(turn: Turn) -> str:
    return turn.problem or f"{' '.join(turn.guess.upper())}\n{' '.join(turn.marks)}"


def reference_reply(messages: vf.Messages, row: dict[str, Any]) -> str:
    """What a player who knows the word writes; `vf-validate` asks for it."""
    return PARSER.format(guess=row["answer"], think="I know it.")


def words(split: str) -> list[str]:
    """The hidden words of a split. A word belongs to one for good, whatever the seed."""
    is_eval = split == "eval"
    return [word for word in WORDS_FILE.read_text(encoding="ascii").split() if _is_for_eval(word) == is_eval]


def rows(split: str, count: int, seed: int) -> list[dict[str, Any]]:
    """`count` games; every word of the split comes once before one comes again."""
    rng = random.Random(f"{split}/{seed}")
    every, hidden = words(split), []
    while len(hidden) < count:
        hidden += rng.sample(every, len(every))
    return [{"question": FIRST_MESSAGE, "answer": word} for word in hidden[:count]]


def _is_for_eval(word: str) -> bool:
    return hashlib.sha256(word.encode()).digest()[0] % EVAL_SHARE == 0


def _check_count(name: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name}={value!r}: give a whole number, 1 or more")
