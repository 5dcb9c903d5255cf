"""An environment as they were written for 0.1.11 and later."""

from typing import cast

from datasets import Dataset

import verifiers as vf


class Quiz(vf.MultiTurnEnv):
    async def setup_state(self, state: vf.State, **kwargs) -> None:
        state["asked"] = ["capital of France?", "capital of Peru?"]
        state["right"] = 0

    async def env_response(self, messages: vf.Messages, state: vf.State, **kwargs) -> vf.Messages:
        last = cast(vf.AssistantMessage, messages[-1])
        assert last.role == "assistant" and last.tool_calls is None
        state["right"] += (last.content or "").strip() in ("Paris", "Lima")
        if not state["asked"]:
            state["final_env_response"] = [vf.UserMessage(content="That was all.")]
            return state["final_env_response"]
        return [vf.UserMessage(content=state["asked"].pop(0))]


async def share(state: vf.State) -> float:
    assert all(step["response"].message.role == "assistant" for step in state["trajectory"])
    return state["right"] / 2


def load_environment(**kwargs):
    tool = vf.Tool(name="look_up", description="A look into the atlas", parameters={"type": "object", "properties": {}})
    return Quiz(
        dataset=lambda: Dataset.from_list([{"question": "Ready?"}]),
        rubric=vf.Rubric(funcs=[share]),
        tool_defs=[tool],
        **kwargs,
    )
