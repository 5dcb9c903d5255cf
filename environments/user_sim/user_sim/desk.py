"""`DeskEnv`: the conversation of two actors, the assistant with its tools and the customer, over one database."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any

import verifiers as vf
from user_sim.task import Domain, is_told, same_database
from user_sim.user import STOP, model_prompt, scripted_client
from verifiers.envs.multiturn_env import add_usage

USER = "user"  # the customer's name among the record's actors
SCRIPT = "script"  # the model's name where a script plays the customer


class DeskEnv(vf.StatefulToolEnv):
    """A reply with calls goes to the tools, one without goes to the customer, whose turns the record holds too.

    `max_turns` counts the assistant's replies. The rollout ends when the customer leaves.
    """

    def __init__(
        self,
        domain: Domain,
        *,
        user_model: str | None,
        user_client: Any,
        user_sampling_args: Mapping[str, Any] | None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.domain = domain
        self.user_model, self.user_client = user_model, user_client
        self.user_sampling_args = dict(user_sampling_args or {})
        for tool in domain.tools:
            self.add_tool(tool, args_to_skip=["db"])

    async def setup_state(self, state: vf.State) -> None:
        info = state["info"]
        state["database"] = copy.deepcopy(info["database"])
        state["user_left"] = False
        opening, facts = info["opening"], info["facts"]
        state["user_messages"] = [vf.AssistantMessage(opening)]  # the customer's own view: it is the assistant there
        if self.user_model is None:
            state["user_client"] = scripted_client(facts)
        else:
            state["user_messages"].insert(0, vf.SystemMessage(model_prompt(opening, facts)))
            state["user_client"] = self.user_client if self.user_client is not None else state["client"]

    def update_tool_args(
        self, tool_name: str, tool_args: dict[str, Any], messages: vf.Messages, state: vf.State, **kwargs: Any
    ) -> dict[str, Any]:
        return {**tool_args, "db": state["database"]}

    async def env_response(self, messages: vf.Messages, state: vf.State, **kwargs: Any) -> Any:
        if messages[-1].get("tool_calls"):
            return await super().env_response(messages, state, **kwargs)
        said = await self._ask_user(state, str(vf.MaybeThinkParser().parse_answer(messages) or ""))
        if STOP in said:
            state["user_left"] = True
            state["final_env_response"] = [vf.UserMessage(said)]
        return [vf.UserMessage(said)]

    async def _ask_user(self, state: vf.State, heard: str) -> str:
        """The customer's answer, as a step of its own in the trajectory."""
        view = [*state["user_messages"], vf.UserMessage(heard)]
        response = await self.get_model_response(
            state,
            view,
            client=state["user_client"],
            model=self.user_model or SCRIPT,
            tool_defs=[],
            sampling_args=self.user_sampling_args,
        )
        step = vf.TrajectoryStep.over(
            view,
            completion=[response.message],
            response=response,
            reward=None,
            advantage=None,
            is_truncated=False,  # a customer cut short is no failing of the model's
            trajectory_id=f"{state['trajectory_id']}-{USER}",
            extras={"actor": USER},
        )
        if response.usage is not None and self.user_model is not None:
            add_usage(state, response.usage)
        await self.add_trajectory_step(state, step)
        said = str(vf.MaybeThinkParser().parse_answer([response.message]) or "").strip()
        state["user_messages"] = [*view, vf.AssistantMessage(said)]
        return said

    @vf.stop
    async def no_tools_called(self, state: vf.State, **kwargs: Any) -> bool:
        """A reply without a call is for the customer, and does not end anything."""
        return False

    @vf.stop
    async def max_turns_reached(self, state: vf.State, **kwargs: Any) -> bool:
        own = sum(step["extras"].get("actor") != USER for step in state["trajectory"])
        return 0 < self.max_turns <= own

    @vf.cleanup
    async def forget_user(self, state: vf.State) -> None:
        state.pop("user_client", None)


# The rewards


def task_done(completion: vf.Messages, state: vf.State, info: Mapping[str, Any]) -> float:
    """1.0 when the database is as it should be, and the customer was told what it wanted to know."""
    if not database_right(state, info):
        return vf.Graded(0.0, "the database is not as it should be")
    missing = _not_told(completion, info)
    return vf.Graded(0.0, f"the customer was not told: {', '.join(missing)}") if missing else 1.0


def database_right(state: vf.State, info: Mapping[str, Any]) -> float:
    return float(same_database(_plain(state["database"]), info["database_after"]))


def everything_told(completion: vf.Messages, info: Mapping[str, Any]) -> float:
    return float(not _not_told(completion, info))


def user_turns(state: vf.State) -> float:
    return float(sum(step["extras"].get("actor") == USER for step in state["trajectory"]))


def _not_told(completion: vf.Messages, info: Mapping[str, Any]) -> list[str]:
    said = [vf.MaybeThinkParser().parse_answer([m]) for m in completion if m["role"] == "assistant" and m["content"]]
    texts = [str(text or "") for text in said]
    return [output["value"] for output in info["outputs"] if not any(is_told(output, text) for text in texts)]


def _plain(database: Any) -> Any:
    """As it reads after a trip through JSON, as the reference does."""
    return json.loads(json.dumps(database))
