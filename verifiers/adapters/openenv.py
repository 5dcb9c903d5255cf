"""`OpenEnvEnv`: an environment that a server of OpenEnv runs, played over its protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from verifiers.adapters.games import GameEnv, sum_of_step_rewards
from verifiers.adapters.openenv_actions import action_in, expected, is_tool_call, tool_answer, worded
from verifiers.adapters.openenv_session import ActionRefused, OpenEnvServer, OpenEnvSession, Step
from verifiers.calls import AuthorCall, run_sync
from verifiers.decorators import cleanup, stop
from verifiers.envs.tool_env import mended, tool_content, written_calls
from verifiers.errors import ConfigError, Error, NotHere, SetupError, ToolParseError, Undecided
from verifiers.parsers import MaybeThinkParser, Parser
from verifiers.rubrics import Rubric
from verifiers.rubrics.tool_rubric import calls_of
from verifiers.tools import parse_arguments
from verifiers.types import Message, RolloutInput, SamplingArgs, State, ToolMessage, UserMessage, as_messages


class OpenEnvEnv(GameEnv):
    """Each row is an episode with a seed of its own: the first observation is the prompt.

        env = vf.OpenEnvEnv(base_url="http://127.0.0.1:8000", num_train_examples=100, num_eval_examples=20)

    The server's schema says how it is played. Usually ("gym") every reply is an action: a JSON object, or the bare
    value where the action has one field; `action_parser` reads it otherwise. Where actions are calls of tools ("mcp"),
    the model is given these, and the episode also ends when it answers without a call.

    `prompt_renderer` words an observation: it is called with it, and with those of `context` ("reset" or "step"),
    `action_schema`, `contract` and `seed` that it names; it returns messages, or the text of one.

    The reward is the sum of what the steps gave, unless `rubric` says otherwise.
    """

    def __init__(
        self,
        openenv_project: str | Path | None = None,
        num_train_examples: int = 100,
        num_eval_examples: int = 50,
        seed: int = 0,
        prompt_renderer: Callable[..., Any] | None = None,
        max_turns: int = -1,
        rubric: Rubric | None = None,
        startup_timeout_seconds: float = 30.0,
        startup_poll_interval_seconds: float = 1.0,
        *,
        base_url: str | None = None,
        contract: Literal["gym", "mcp"] | None = None,
        action_parser: Callable[[str], Mapping[str, Any]] | None = None,
        headers: Mapping[str, str] | None = None,
        message_timeout_s: float = 60.0,
        parser: Parser | None = None,
        **kwargs: Any,
    ) -> None:
        if num_train_examples <= 0 and num_eval_examples <= 0:
            raise ConfigError("OpenEnvEnv needs num_train_examples or num_eval_examples above 0")
        if contract not in (None, "gym", "mcp"):
            raise ConfigError(f"contract is 'gym' or 'mcp', got {contract!r}; left out, the server's schema says which")
        self.openenv_project, self.base_url, self.headers = openenv_project, base_url, headers
        self.contract, self.action_parser, self.prompt_renderer = contract, action_parser, prompt_renderer
        self.startup_timeout_seconds = startup_timeout_seconds
        self.startup_poll_interval_seconds = startup_poll_interval_seconds
        self.message_timeout_s = message_timeout_s
        first_eval = seed + max(num_train_examples, 0)
        parser = parser or MaybeThinkParser()
        super().__init__(
            dataset=self._episodes(seed, num_train_examples),
            eval_dataset=self._episodes(first_eval, num_eval_examples),
            parser=parser,
            rubric=rubric or Rubric([sum_of_given_rewards], parser=parser),
            max_turns=max_turns,
            **kwargs,
        )

    @cached_property
    def server(self) -> OpenEnvServer:
        """Where the environment runs. Raises NotHere when only a project is known."""
        if self.base_url is None:
            project = "PROJECT" if self.openenv_project is None else self.openenv_project
            raise NotHere(
                "OpenEnvEnv does not start the container of an OpenEnv project. "
                f"Start its server (uv run --project {project} server) and say where it is: "
                "base_url='http://127.0.0.1:8000', or vf-eval … -x '{\"base_url\": \"http://127.0.0.1:8000\"}'"
            )
        return OpenEnvServer(
            self.base_url,
            self.headers,
            start_timeout_s=self.startup_timeout_seconds,
            start_poll_s=self.startup_poll_interval_seconds,
            message_timeout_s=self.message_timeout_s,
        )

    # ---- for authors ----

    def parse_action(self, text: str, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """The action that a reply means. Raises ValueError, whose text the model is told."""
        return self.action_parser(text) if self.action_parser is not None else action_in(text, schema)

    # ---- rows ----

    def _episodes(self, first_seed: int, count: int) -> Callable[[], list[dict[str, Any]]] | None:
        """Rows, made when they are asked for: they take a reset each."""
        return (lambda: run_sync(self._rows(range(first_seed, first_seed + count)))) if count > 0 else None

    async def _rows(self, seeds: Iterable[int]) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        session: OpenEnvSession | None = None
        try:
            for seed in seeds:
                if session is None:
                    session, step, _ = await self.server.begin(seed)
                else:
                    step = await session.reset(seed)
                rows.append({"prompt": await self._shown(step, "reset", seed), "info": {"seed": seed}})
        except Error as error:
            raise SetupError(f"no rows for OpenEnvEnv: {error}") from error
        finally:
            if session is not None:
                await session.close()
        return rows

    # ---- the loop ----

    async def init_state(
        self, input: RolloutInput, client: Any, model: str, sampling_args: SamplingArgs | None = None
    ) -> State:
        """Begins the episode as well: here waiting for a place at the server counts against no time limit."""
        state = await super().init_state(input, client, model, sampling_args)
        try:
            session, step, waited_s = await self.server.begin(int(state["info"]["seed"]))
        except Error as error:
            state["error"] = error
            return state
        state.attempt.clock.queue_s += waited_s
        state["openenv_session"], state["openenv_first"] = session, step
        return state

    async def setup_state(self, state: State) -> State:
        if state["error"] is not None:
            return state
        schema = await self.server.action_schema()
        state["openenv_action_schema"], state["openenv_contract"] = schema, self._contract_of(schema)
        state["openenv_rewards"] = []  # what each step gave; None: nothing
        if state["openenv_contract"] == "mcp":
            state["tool_defs"] = await state["openenv_session"].tools()
        first: Step = state.pop("openenv_first")
        state["openenv_done"] = first.is_over
        shown = await self._shown(first, "reset", int(state["info"]["seed"]))
        if state["prompt"][-len(shown) :] != shown:  # a reset that its seed does not fix
            is_led = state["prompt"][0]["role"] == "system" != shown[0]["role"]
            state["prompt"] = [*state["prompt"][:is_led], *shown]
        return state

    def kept_message(self, message: Message) -> Message:
        return mended(message)

    async def env_response(self, messages: list[Message], state: State, **kwargs: Any) -> list[Message]:
        state["trajectory"][-1]["reward"] = 0.0
        if state["openenv_contract"] == "mcp":
            return [await self._call(call, state) for call in written_calls(state, calls_of(messages[-1:]))]
        try:
            action = self.parse_action(str(self.parser.parse_answer(messages) or ""), state["openenv_action_schema"])
        except (ValueError, TypeError, LookupError) as error:
            return self._no_action(error, state)
        try:
            step = await self._step(action, state)
        except ActionRefused as error:
            return self._no_action(error, state)
        return await self._shown(step, "step", int(state["info"]["seed"]))

    def _no_action(self, error: Exception, state: State) -> list[Message]:
        state["openenv_invalid_actions"] = state.get("openenv_invalid_actions", 0) + 1
        return [UserMessage(f"That is no action: {error}")]

    async def _call(self, call: tuple[Any, Any], state: State) -> Message:
        kept, written = call
        if state["openenv_done"]:
            return ToolMessage("Error: the episode ended with the call before; this one was not made.", kept["id"])
        try:
            arguments = parse_arguments(written)
            step = await self._step({"type": "call_tool", "tool_name": kept.name, "arguments": arguments}, state)
        except (ToolParseError, ActionRefused) as error:
            return ToolMessage(f"Error: {error}", kept["id"])
        return ToolMessage(tool_content(tool_answer(step.observation)), kept["id"])

    async def _step(self, action: Mapping[str, Any], state: State) -> Step:
        step: Step = await state["openenv_session"].step(action)
        state["openenv_rewards"].append(step.reward)
        state["trajectory"][-1]["reward"] += step.reward or 0.0
        state["openenv_done"] = step.is_over
        return step

    @stop(priority=10)
    async def openenv_done(self, state: State, **kwargs: Any) -> bool:
        return bool(state.get("openenv_done"))

    @stop
    async def mcp_no_tool_calls(self, state: State, **kwargs: Any) -> bool:
        """The model answered without a call: that is its answer."""
        if state.get("openenv_contract") != "mcp" or not state["trajectory"]:
            return False
        return not calls_of(state["trajectory"][-1]["completion"])

    @cleanup
    async def close_session(self, state: State) -> None:
        session: OpenEnvSession | None = state.pop("openenv_session", None)
        state.pop("openenv_first", None)
        if session is not None:
            await session.close()

    # ---- what the model is shown ----

    async def _shown(self, step: Step, context: str, seed: int) -> list[Message]:
        schema = await self.server.action_schema()
        offered = {"context": context, "action_schema": schema, "contract": self._contract_of(schema), "seed": seed}
        renderer = AuthorCall(self.prompt_renderer or default_prompt)
        shown = await renderer.invoke((step.observation,), renderer.selected(offered))
        messages = as_messages(shown or [])
        if not messages or any(message.get("content") is None for message in messages):
            raise ConfigError(
                f"prompt_renderer returned {shown!r:.80} for the observation of a {context}; "
                "it returns text, or messages with content"
            )
        return messages

    def _contract_of(self, schema: Mapping[str, Any]) -> str:
        return self.contract or ("mcp" if is_tool_call(schema) else "gym")


def default_prompt(observation: Any, context: str, action_schema: Mapping[str, Any], contract: str) -> str:
    """The observation in words; the first one says how to act."""
    if contract == "mcp":
        return worded(observation) if observation else "The environment is ready. Act by calling its tools."
    shown = worded(observation)
    return f"{shown}\n\nEach reply is your next action: {expected(action_schema)}." if context == "reset" else shown


def sum_of_given_rewards(state: State) -> float:
    given = state["openenv_rewards"]
    if state["openenv_done"] and not given:
        raise Undecided("the episode was over before the first action")
    if given and all(reward is None for reward in given):
        raise Undecided(f"the environment gave no reward in any of its {len(given)} steps")
    return sum_of_step_rewards(state)
