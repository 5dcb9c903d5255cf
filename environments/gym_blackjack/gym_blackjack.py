"""`gym_blackjack`: Blackjack of Gymnasium against the dealer, each game with a seed of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import verifiers as vf

STICK, HIT = 0, 1
ACTIONS = {"stick": STICK, "stand": STICK, "hit": HIT}
MAX_STEPS = 16
SYSTEM_PROMPT = """\
You play Blackjack against a dealer, with cards from an endless deck. Court cards count 10, an ace 11, or 1 where 11
would be too much (an ace that counts 11 is usable). With more than 21 you lose. When you stick, the dealer draws to 17
or more; whoever is nearer to 21 wins.

Each turn, you may think in <think>...</think>; then write <action>hit</action> or <action>stick</action>."""
_SHOWN = re.compile(r"You have (\d+), (with|without) a usable ace\. The dealer shows (\d+)\.")


class OneAction(vf.XMLParser):
    """The action in the tags; none where two that differ are given."""

    def parse_answer(self, completion: Any) -> Any:
        texts = self.assistant_texts(completion)
        found = [self.parse(texts[-1], last=last).action for last in (False, True)] if texts else [None]
        return found[0] if found[0] == found[-1] else None


PARSER = OneAction(["think", "action"], answer_field="action")


class Position(NamedTuple):
    total: int
    dealer: int  # the card that is shown; an ace is 1
    has_usable_ace: bool


def load_environment(
    num_train_episodes: int = 2000,
    num_eval_episodes: int = 200,
    seed: int = 0,
    reward: str = "decisions",
    system_prompt: str = SYSTEM_PROMPT,
) -> vf.Environment:
    """One game a row. See the README for the arguments."""
    for name, value in (("num_train_episodes", num_train_episodes), ("num_eval_episodes", num_eval_episodes)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ValueError(f"{name}={value!r}: give a whole number, 1 or more")
    if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        raise ValueError(f"seed={seed!r}: give a whole number, 0 or more")
    if reward not in ("decisions", "outcome"):
        raise ValueError(f"reward={reward!r}: give 'decisions' or 'outcome'")
    weights = {"decisions": [1.0, 0.0], "outcome": [0.0, 1.0]}[reward]
    return vf.GymEnv(
        "Blackjack-v1",
        env_kwargs={"sab": True},  # the rules of Sutton and Barto
        action_parser=action_in,
        obs_to_text=in_words,
        num_train_episodes=num_train_episodes,
        num_eval_episodes=num_eval_episodes,
        max_episode_steps=MAX_STEPS,
        seed=seed,
        system_prompt=system_prompt,
        parser=PARSER,
        rubric=vf.Rubric(
            [decisions, outcome, best_decisions, invalid_actions], [*weights, 0.0, 0.0], parser=PARSER
        ),
    )  # fmt: skip


def action_in(text: str) -> int:
    """Raises ValueError for anything but the one word."""
    action = ACTIONS.get(text.strip().strip(".").casefold())
    if action is None:
        raise ValueError("write <action>hit</action> or <action>stick</action>")
    return action


def in_words(observation: Any) -> str:
    """An observation of Gymnasium: own sum, the dealer's card, whether an ace is usable."""
    total, dealer, has_ace = (int(part) for part in observation)
    return f"You have {total}, {'with' if has_ace else 'without'} a usable ace. The dealer shows {dealer}."


def position_in(text: str) -> Position:
    """The last position that was shown; the inverse of `in_words`."""
    total, ace, dealer = _SHOWN.findall(text)[-1]
    return Position(int(total), int(dealer), ace == "with")


# Rewards


def decisions(state: vf.State) -> float:
    """1.0 less the expected value that the decisions gave away; 0.0 for a game that was not played to its end."""
    if not state.get("gym_done"):
        return vf.Graded(0.0, "the game was not played to its end")
    lost = sum(value_of(position) - value(position, action) for position, action in taken(state))
    return max(0.0, 1.0 - lost)


def outcome(state: vf.State) -> float:
    """1.0 won, 0.0 drawn, -1.0 lost: what Gymnasium pays. Not to play on is to lose."""
    if not state.get("gym_done"):
        return vf.Graded(-1.0, "the game was not played to its end")
    return float(sum(step["reward"] or 0.0 for step in state["trajectory"]))


def best_decisions(state: vf.State) -> float:
    """Share of the decisions that no other would have bettered; without any, 0.0."""
    made = [value(position, action) >= value_of(position) for position, action in taken(state)]
    return sum(made) / len(made) if made else 0.0


def invalid_actions(state: vf.State) -> float:
    return float(state.get("gym_invalid_actions", 0))


def taken(state: vf.State) -> Iterator[tuple[Position, int]]:
    """Each position with what was done in it."""
    for step in state["trajectory"]:
        said = "\n".join(str(message["content"]) for message in step["prompt"] if message["role"] == "user")
        try:
            action = action_in(str(PARSER.parse_answer(step["completion"]) or ""))
        except ValueError:
            continue
        yield position_in(said), action


# The game's exact values. The deck is endless, so that a position is all there is to know.

_CARDS = dict.fromkeys(range(1, 10), 1 / 13) | {10: 4 / 13}


@cache
def value(position: Position, action: int) -> float:
    """The expected outcome of an action, when all after it are the best."""
    if action == STICK:
        ends = dealer_ends(position.dealer, position.dealer == 1)
        return sum(p * ((position.total > end) - (position.total < end)) for end, p in ends.items())
    return sum(p * value_of(drawn) if (drawn := _with(position, card)) else -p for card, p in _CARDS.items())


@cache
def value_of(position: Position) -> float:
    """The expected outcome of the best play from here."""
    return max(value(position, STICK), value(position, HIT))


@cache
def dealer_ends(total: int, has_ace: bool) -> dict[int, float]:
    """Where the dealer ends, with what probability; 0 is above 21. An ace counts 1 in `total`."""
    best = total + 10 if has_ace and total + 10 <= 21 else total
    if best > 21:
        return {0: 1.0}
    if best >= 17:
        return {best: 1.0}
    ends: dict[int, float] = {}
    for card, p in _CARDS.items():
        for end, q in dealer_ends(total + card, has_ace or card == 1).items():
            ends[end] = ends.get(end, 0.0) + p * q
    return ends


def _with(position: Position, card: int) -> Position | None:
    """The position after a card; None above 21."""
    total = position.total + card
    has_ace = position.has_usable_ace
    if card == 1 and not has_ace and total + 10 <= 21:
        total, has_ace = total + 10, True
    if total > 21 and has_ace:
        total, has_ace = total - 10, False
    return None if total > 21 else Position(total, position.dealer, has_ace)


def reference_reply(messages: vf.Messages, row: dict[str, Any]) -> str:
    """The best decision in the position shown last; `vf-validate` asks for it."""
    position = position_in("\n".join(str(m["content"]) for m in messages if m["role"] == "user"))
    action = "hit" if value(position, HIT) > value(position, STICK) else "stick"
    return PARSER.format(think="The dealer's card decides.", action=action)
