"""An environment as they were written for 0.1.8-0.1.10."""

import json

from datasets import Dataset

import verifiers as vf


async def charge(cents: int, till: dict) -> str:
    """Put an amount into the till.

    Args:
        cents: how much
    """
    till["cents"] += cents
    return f"{till['cents']} in the till"


class Till(vf.StatefulToolEnv):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.add_tool(charge, args_to_skip=["till"])
        self.closed = []

    async def setup_state(self, state: vf.State, **kwargs) -> vf.State:
        state = await super().setup_state(state, **kwargs)
        state["till"] = {"cents": 0}
        return state

    def update_tool_args(self, tool_name, tool_args, messages, state, **kwargs):
        return {**tool_args, "till": state["till"]}

    async def env_response(self, messages: vf.Messages, state: vf.State, **kwargs) -> vf.Messages:
        assert isinstance(messages, list) and all(isinstance(m, dict) for m in messages)
        call = messages[-1]["tool_calls"][0]
        assert call["function"]["name"] == call.function.name == "charge"
        assert "cents" in json.loads(call["function"]["arguments"])
        return await super().env_response(messages, state, **kwargs)

    @vf.stop(priority=5)
    async def is_full(self, state: vf.State) -> bool:
        return state["till"]["cents"] >= 100

    @vf.cleanup
    async def close(self, state: vf.State):
        self.closed.append(state["till"]["cents"])


async def is_polite(prompt, completion, answer, state, **kwargs) -> float:
    reply = await state["client"].chat.completions.create(
        model=state["model"],
        messages=[{"role": "user", "content": f"Polite? {completion[-1]['content']}"}],
        temperature=0.0,
    )
    return 1.0 if "yes" in (reply.choices[0].message.content or "") else 0.0


def load_environment(**kwargs):
    rubric = vf.Rubric(funcs=[lambda state: state["till"]["cents"] / 100, is_polite], weights=[1.0, 0.5])
    rows = Dataset.from_list([{"prompt": [{"role": "user", "content": "Charge 100."}], "info": json.dumps({"a": 1})}])
    return Till(eval_dataset=rows, rubric=rubric, **kwargs)
