"""`ResearchEnv`: search, open, find, finish; a rollout that the search service stopped is unscored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import verifiers as vf
from deep_research import tools
from deep_research.answers import finished_with
from deep_research.provider import ProviderFault, SearchProvider
from deep_research.session import Research, SearchDown

LAST_TURNS = 2  # in which the model is reminded to finish


class ResearchEnv(vf.StatefulToolEnv):
    """`connect` is called with a row's `info` at the start of each rollout and gives its search provider."""

    def __init__(self, connect: Callable[[dict[str, Any]], SearchProvider], page_chars: int, **kwargs: Any) -> None:
        super().__init__(error_formatter=told, stop_errors=[SearchDown], **kwargs)
        self.connect = connect
        self.page_chars = page_chars
        for tool in (tools.search, tools.open, tools.find):
            self.add_tool(tool, args_to_skip=["research"])
        self.add_tool(tools.finish)

    async def setup_state(self, state: vf.State) -> None:
        state["research"] = Research(self.connect(state.get("info") or {}), self.page_chars)

    def update_tool_args(
        self, tool_name: str, tool_args: dict[str, Any], messages: vf.Messages, state: vf.State, **kwargs: Any
    ) -> dict[str, Any]:
        return tool_args if tool_name == "finish" else {**tool_args, "research": state["research"]}

    async def env_response(self, messages: vf.Messages, state: vf.State, **kwargs: Any) -> vf.Messages:
        answers = await super().env_response(messages, state, **kwargs)
        left = self.max_turns - len(state["trajectory"])
        if answers and 0 < left <= LAST_TURNS:
            last = answers[-1]
            told_left = "This is your last turn" if left == 1 else f"{left} turns are left"
            last["content"] = f"{last['content']}\n\n({told_left}: call finish with your best answer.)"
        return answers

    @vf.stop(priority=1)  # before max_turns_reached: an answer given in the last turn was given
    async def was_finished(self, state: vf.State) -> bool:
        trajectory = state["trajectory"]
        return bool(trajectory) and any(finished_with(m) is not None for m in trajectory[-1]["completion"])

    @vf.cleanup
    async def end_research(self, state: vf.State) -> None:
        """Whether the answer would have been right plays no part: else luck alone would be counted."""
        research: Research | None = state.get("research")
        if research is None:
            return
        if research.why_stopped and state["error"] is None:
            state["error"] = SearchDown(research.why_stopped)
        await research.provider.close()


def told(error: Exception) -> str:
    """A failed call, as the model hears of it."""
    if isinstance(error, ProviderFault):
        return (
            f"The search service failed ({error}). That is a fault of the service and not of your request: "
            "try again, or go another way."
        )
    return f"Error: {error}"
