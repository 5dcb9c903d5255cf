"""`GameEnv`: what environments share that play a game of another library, one move a turn."""

from __future__ import annotations

from typing import Any

from verifiers.decorators import stop
from verifiers.envs.multiturn_env import MultiTurnEnv
from verifiers.types import State


class GameEnv(MultiTurnEnv):
    """Its `env_response` makes the move of the last reply and writes what it was worth to the turn's `reward`."""

    @stop
    async def max_turns_reached(self, state: State, **kwargs: Any) -> bool:
        """Only once the last turn's move was made: otherwise its reward would be lost."""
        trajectory = state["trajectory"]
        return 0 < self.max_turns <= len(trajectory) and trajectory[-1]["reward"] is not None


def sum_of_step_rewards(state: State) -> float:
    return float(sum(step["reward"] or 0.0 for step in state["trajectory"]))
