"""`SingleTurnEnv`: one question, one answer."""

from __future__ import annotations

from typing import Any

from verifiers.envs.multiturn_env import MultiTurnEnv
from verifiers.types import Message, State


class SingleTurnEnv(MultiTurnEnv):
    """The commonest environment: rows, a parser and a rubric.

    >>> import asyncio, verifiers as vf
    >>> env = vf.SingleTurnEnv(
    ...     dataset=[{"question": "2 + 2?", "answer": "4"}],
    ...     rubric=vf.Rubric(funcs=[lambda completion, answer: float(completion[-1].content == answer)]),
    ... )
    >>> results = asyncio.run(env.evaluate(vf.ScriptedClient(["4"]), model="scripted"))
    >>> results["outputs"][0]["reward"]
    1.0
    """

    _has_answers = False

    def __init__(self, **kwargs: Any) -> None:
        kwargs.pop("max_turns", None)
        super().__init__(max_turns=1, **kwargs)

    async def env_response(self, messages: list[Message], state: State, **kwargs: Any) -> Any:
        """Never asked: the rollout ends after one turn."""
        raise NotImplementedError("SingleTurnEnv has one turn; use MultiTurnEnv for more")
