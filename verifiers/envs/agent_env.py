"""`AgentEnv`: a rollout is an agent program of its own, in a sandbox, that asks its model at an address of ours.

setup_state: sandbox, set-up command → the agent runs, each of its requests is a turn → files are read → clean-up
"""

from __future__ import annotations

import asyncio
import secrets
import time
import zlib
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from verifiers.decorators import cleanup, teardown
from verifiers.envs.agent_conversations import Conversation, Conversations
from verifiers.envs.agent_endpoint import ChatCall, RefusedRequest, Where, completion, models
from verifiers.envs.agent_process import AgentProcess, cancel_all
from verifiers.envs.agent_tunnel import AgentTunnel, HttpAnswer, HttpRequest
from verifiers.envs.multiturn_env import MultiTurnEnv, record_error
from verifiers.errors import (
    AuthenticationError,
    ConfigError,
    EnvironmentFault,
    Error,
    ModelNotFoundError,
    ModelRequestError,
    ModelTimeoutError,
    NoSandboxError,
    OverlongPromptError,
    SandboxError,
    SetupError,
    one_line,
)
from verifiers.recording import ASSISTANT
from verifiers.sandbox import ExecResult, Sandbox, SandboxBackend, SandboxLimits, SandboxSpec
from verifiers.types import Response, State, TrajectoryStep

DAY_S = 86_400.0
FILE_BYTES = 1 << 20  # of a file in `keep_files`
_LIMITS = SandboxLimits(wall_s=600, memory_mb=2048, processes=256, file_mb=1024, output_kb=1024)


@dataclass(frozen=True, slots=True)
class AgentActor:
    """Another model that an agent may ask. `None`: the rollout's own."""

    model: str | None = None
    client: Any = None


@dataclass(slots=True)
class AgentRollout:
    """What belongs to one rollout and is nobody's business outside."""

    sandbox: Sandbox
    key: str = field(default_factory=lambda: f"vf-{secrets.token_urlsafe(24)}")
    conversations: Conversations = field(default_factory=Conversations)
    turning: asyncio.Lock = field(default_factory=asyncio.Lock)  # whether to ask is decided between turns, not in one
    over: asyncio.Event = field(default_factory=asyncio.Event)  # a request was refused for good
    speaking: Conversation | None = None  # whose turn is being recorded
    in_flight: int = 0
    requests: int = 0
    complaint: Error | None = None  # what the last request failed of, if the agent was left to answer to it


class AgentEnv(MultiTurnEnv):
    """Runs `command`, a program with an agent's loop in it, in a sandbox for each rollout.

        env = vf.AgentEnv("python3 agent.py", sandbox=SandboxSpec(files={"agent.py": source}), dataset=rows)

    The agent finds `OPENAI_BASE_URL`, `OPENAI_API_KEY` and `OPENAI_MODEL` in its environment, and its task in the file
    `VF_PROMPT_FILE`. It needs to know nothing of us.
    """

    ended_condition = "agent_ended"  # the stop condition of an agent that ended by itself
    _has_answers = False

    def __init__(
        self,
        command: str | Sequence[str],
        *,
        backend: SandboxBackend | str = "local",
        unsafe: bool = False,
        sandbox: SandboxSpec | None = None,
        setup_command: str | None = None,
        cwd: str | None = None,
        actors: Mapping[str, str | AgentActor] | None = None,
        keep_files: Sequence[str] = (),
        max_turns: int = 100,
        timeout_s: float | None = 1800.0,
        grace_s: float = 10.0,
        kept_output_kb: int = 64,
        scores_crashes: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(max_turns=max_turns, timeout_s=timeout_s, **kwargs)
        if self.message_type != "chat":
            raise ConfigError("an AgentEnv speaks chat completions; message_type must be 'chat'")
        if ASSISTANT in (actors or {}):
            raise ConfigError(f"{ASSISTANT!r} is the rollout's own model; call the other actors something else")
        self.command = command
        self.backend = backend
        self.unsafe = unsafe
        self.sandbox = sandbox or SandboxSpec(limits=_LIMITS, lifetime_s=DAY_S)
        self.setup_command = setup_command
        self.cwd = cwd
        self.actors = {name: AgentActor(who) if isinstance(who, str) else who for name, who in (actors or {}).items()}
        self.keep_files = tuple(keep_files)
        self.grace_s = grace_s
        self.kept_output_kb = kept_output_kb
        self.scores_crashes = scores_crashes
        self._opened: SandboxBackend | None = None
        self._opening: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()
        self._rollouts: dict[str, AgentRollout] = {}  # by state["trajectory_id"]

    # ---- for authors ----

    def sandbox_spec(self, state: State) -> SandboxSpec:
        """What this rollout's sandbox is made from: an image or files of the row's own, for example."""
        return self.sandbox

    async def make_sandbox(self, state: State) -> Sandbox:
        """Raises NoSandboxError, which concerns every rollout, when there can be none here."""
        try:
            sandbox = await (await self._open_backend()).create(self.sandbox_spec(state))
        except NoSandboxError:
            raise
        except SetupError as error:
            raise NoSandboxError(str(error)) from error
        state["sandbox_id"] = sandbox.id
        return sandbox

    def agent_command(self, state: State) -> str | Sequence[str]:
        return self.command

    def agent_variables(self, state: State) -> dict[str, str]:
        """Environment variables of the agent, besides those that name its endpoint."""
        return {}

    def prompt_text(self, state: State) -> str:
        """What the file `VF_PROMPT_FILE` holds: by default the prompt's messages, one after the other."""
        contents = [message.get("content") for message in state["prompt"]]
        return "\n\n".join(content for content in contents if isinstance(content, str))

    def sandbox_of(self, state: State) -> Sandbox:
        """The rollout's sandbox, from `setup_state` to the end of `post_rollout`."""
        return self._rollout(state).sandbox

    def _rollout(self, state: State) -> AgentRollout:
        rollout = self._rollouts.get(state.get("trajectory_id") or "")
        if rollout is None:
            raise SandboxError("this rollout has no sandbox: its setup_state must call super().setup_state(state)")
        return rollout

    # ---- the rollout ----

    async def setup_state(self, state: State) -> State:
        """Makes the sandbox and what the agent finds in it."""
        state = await super().setup_state(state) or state
        began = time.perf_counter()
        sandbox = await self.make_sandbox(state)
        self._rollouts[state["trajectory_id"]] = AgentRollout(sandbox)
        await sandbox.write_file(_prompt_file(sandbox), self.prompt_text(state))
        if self.setup_command is not None:
            result = await sandbox.exec(self.setup_command, cwd=self.cwd)
            if not result.ok:
                raise SandboxError(f"the set-up command failed: {_how(result, result.error_text or result.text)}")
        state.attempt.clock.sandbox_s += time.perf_counter() - began
        return state

    async def add_trajectory_step(self, state: State, trajectory_step: TrajectoryStep) -> None:
        rollout = self._rollouts.get(state["trajectory_id"])
        if rollout is not None and (speaking := rollout.speaking) is not None:
            if speaking.actor != ASSISTANT:
                trajectory_step["extras"]["actor"] = speaking.actor
            if speaking.number:
                trajectory_step["trajectory_id"] = f"{state['trajectory_id']}-{speaking.number}"
        await super().add_trajectory_step(state, trajectory_step)

    async def _take_turn(self, state: State) -> bool:
        """The whole of the agent's run; its requests are the turns."""
        try:
            await self._run_agent(state, self._rollout(state))
        except Exception as error:
            record_error(state, error)
        if not state["is_completed"]:
            state["is_completed"], state["stop_condition"] = True, _reason(state) or self.ended_condition
            state["is_truncated"] = state["is_truncated"] or state["stop_condition"] in _CUT_SHORT
        return True

    async def _run_agent(self, state: State, rollout: AgentRollout) -> None:
        tunnel = await AgentTunnel.open(rollout.sandbox)
        serving = asyncio.ensure_future(tunnel.serve(partial(self._answer, state, rollout)))
        try:
            agent = await self._start_agent(state, rollout, tunnel.port)
            try:
                await self._watch(state, rollout, agent, serving)
            finally:
                await agent.end()
                state["agent_exit_code"] = agent.exit_code
                state["agent_stdout"], state["agent_stderr"] = agent.stdout.text, agent.stderr.text
        finally:
            await cancel_all(serving)
            await tunnel.close()
        state["agent_files"] = await self._read_files(rollout.sandbox)
        self._check_end(state, rollout, agent)

    async def _start_agent(self, state: State, rollout: AgentRollout, port: int) -> AgentProcess:
        variables = {**self.agent_variables(state), **_endpoint_variables(state, rollout, port)}
        process = await rollout.sandbox.open_process(self.agent_command(state), cwd=self.cwd, env=variables)
        await process.close_stdin()
        return AgentProcess(process, self.kept_output_kb << 10)

    async def _watch(
        self, state: State, rollout: AgentRollout, agent: AgentProcess, serving: asyncio.Future[None]
    ) -> None:
        """Until the agent has ended, or is to be ended."""
        clock = state.attempt.clock
        over = asyncio.ensure_future(rollout.over.wait())
        waited = {agent.ended, serving, over}
        try:
            while not clock.is_up:
                await asyncio.wait(waited, timeout=clock.remaining_s, return_when=asyncio.FIRST_COMPLETED)
                if agent.ended.done():
                    return
                if serving.done():
                    if self.scores_crashes and state["trajectory"] and not rollout.sandbox.is_closed:
                        return  # a command of the agent's ended it
                    raise serving.exception() or SandboxError("the agent's tunnel has ended")
                if over.done():
                    if state["error"] is None:
                        await asyncio.wait({agent.ended}, timeout=self.grace_s)
                    return
            if rollout.in_flight and not state["trajectory"]:
                raise ModelTimeoutError(f"no reply within the rollout's {clock.limit_s:g} s")
        finally:
            await cancel_all(over)

    def _check_end(self, state: State, rollout: AgentRollout, agent: AgentProcess) -> None:
        """Raises when the rollout failed, and not the model."""
        if not state["trajectory"] and state["stop_condition"] in (None, "timeout_reached"):
            how = "its time was up" if agent.result is None else _how(agent.result, agent.words)
            raise rollout.complaint or EnvironmentFault(f"the agent ended without a reply of the model: {how}")
        if rollout.over.is_set() or agent.result is None:
            return
        if isinstance(rollout.complaint, OverlongPromptError):
            state["prompt_too_long"] = state["is_truncated"] = True
        elif self.scores_crashes:
            return
        elif rollout.complaint is not None:
            raise rollout.complaint
        elif not agent.result.ok:
            raise EnvironmentFault(f"the agent failed: {_how(agent.result, agent.words)}")

    async def _read_files(self, sandbox: Sandbox) -> dict[str, str]:
        """Those of `keep_files` that there are."""
        found = {}
        for path in self.keep_files:
            try:
                data = await sandbox.read_file(path, max_bytes=FILE_BYTES)
            except OSError:
                continue
            found[path] = data.decode("utf-8", "replace")
        return found

    # ---- requests ----

    async def _answer(self, state: State, rollout: AgentRollout, request: HttpRequest) -> HttpAnswer:
        try:
            where = Where.of(request.method, request.path)
            if not secrets.compare_digest(request.key.encode(), f"Bearer {rollout.key}".encode()):
                raise RefusedRequest(401, "the key is not this rollout's; it is in OPENAI_API_KEY", "invalid_api_key")
            if where.what == "models":
                return models([state["model"], *self.actors])
            call = ChatCall.read(request.body)
            return completion(await self._ask(state, rollout, self._actor(where, call), call), call)
        except RefusedRequest as refused:
            return refused.answer
        except Exception as error:
            record_error(state, error)
            rollout.over.set()
            return RefusedRequest(500, one_line(error)).answer

    def _actor(self, where: Where, call: ChatCall) -> str:
        """By the address, else by the model's name. Any other name means the rollout's own model."""
        if where.actor is None:
            return call.model if call.model in self.actors else ASSISTANT
        if where.actor not in self.actors:
            known = ", ".join(self.actors) or "none"
            raise RefusedRequest(404, f"there is no actor {where.actor!r}; there are: {known}")
        return where.actor

    async def _ask(self, state: State, rollout: AgentRollout, actor: str, call: ChatCall) -> Response:
        """A turn, from the request to its place in the trajectory."""
        await self._refuse_if_over(state, rollout)
        conversation, messages = rollout.conversations.of(actor, call.messages, state.attempt)
        rollout.requests += 1
        rollout.in_flight += 1
        conversation.is_busy = True
        try:
            response = await self._model_reply(state, rollout, conversation, call, messages)
            rollout.complaint = None
            await self._add_turn(state, rollout, conversation, messages, response)
            return response
        except OverlongPromptError as error:
            rollout.complaint = error
            raise RefusedRequest(400, str(error) or "the context is full", "context_length_exceeded") from error
        except (AuthenticationError, ModelNotFoundError):
            raise
        except ModelRequestError as error:
            rollout.complaint = error
            raise RefusedRequest(400, str(error)) from error
        except (ModelTimeoutError, TimeoutError):
            if state.attempt.clock.is_up:
                await self._refuse_if_over(state, rollout)
            raise
        finally:
            rollout.in_flight -= 1
            conversation.is_busy = False

    async def _refuse_if_over(self, state: State, rollout: AgentRollout) -> None:
        async with rollout.turning:
            if not state["is_completed"] and not await self._is_over(state):
                if not 0 < self.max_turns <= len(state["trajectory"]) + rollout.in_flight:
                    return
                state["is_completed"], state["stop_condition"] = True, "max_turns_reached"
        rollout.over.set()
        reason = state["stop_condition"]
        raise RefusedRequest(403, f"this rollout is over ({reason}): no more requests are answered", reason)

    async def _model_reply(
        self, state: State, rollout: AgentRollout, conversation: Conversation, call: ChatCall, messages: list[Any]
    ) -> Response:
        actor = self.actors.get(conversation.actor, AgentActor())
        asked = copy(state)  # requests run side by side, each with the tokens of its own conversation
        asked.attempt = conversation.attempt
        asked.attempt.token_budget = state.attempt.token_budget
        if state.seed is not None:  # the same prompt asked twice is meant to get two replies
            asked.seed = zlib.crc32(f"{state.seed}:{rollout.requests}".encode()) & 0x7FFFFFFF
        return await self.get_model_response(
            asked,
            messages,
            client=actor.client,
            model=actor.model,
            tool_defs=call.tools,
            sampling_args=call.sampling_under(state["sampling_args"]),
        )

    async def _add_turn(
        self,
        state: State,
        rollout: AgentRollout,
        conversation: Conversation,
        messages: list[Any],
        response: Response,
    ) -> None:
        """Into the state, whose `attempt` becomes that of the conversation in which its own model spoke last."""
        async with rollout.turning:
            before, attempt = state.attempt, conversation.attempt
            attempt.token_budget = before.token_budget
            rollout.conversations.keep(conversation)
            state.attempt, rollout.speaking = attempt, conversation
            try:
                await self.add_model_response(state, messages, response)
            finally:
                rollout.speaking = None
                if conversation.actor != ASSISTANT:
                    before.token_budget = attempt.token_budget
                    state.attempt = before

    # ---- sandboxes ----

    async def _open_backend(self) -> SandboxBackend:
        if isinstance(self.backend, SandboxBackend):
            return self.backend
        async with self._opening.setdefault(asyncio.get_running_loop(), asyncio.Lock()):  # what works is tried once
            if self._opened is None:
                self._opened = await _opened(self.backend, self.unsafe)
            return self._opened

    @cleanup(priority=-1000)
    async def close_sandbox(self, state: State) -> None:
        rollout = self._rollouts.pop(state["trajectory_id"], None)
        if rollout is not None:
            await rollout.sandbox.close()

    @teardown
    async def close_backend(self) -> None:
        if self._opened is not None:
            await self._opened.close()
            self._opened = None


_CUT_SHORT = frozenset({"timeout_reached", "prompt_too_long"})


def _reason(state: State) -> str | None:
    """Why a rollout ended whose agent was refused nothing; `None`: because it ended by itself."""
    if state.get("prompt_too_long"):
        return "prompt_too_long"
    if state["error"] is not None:
        return "has_error"
    return "timeout_reached" if state.attempt.clock.is_up else None


def _prompt_file(sandbox: Sandbox) -> str:
    return f"{sandbox.work}/.vf-prompt.txt"


def _endpoint_variables(state: State, rollout: AgentRollout, port: int) -> dict[str, str]:
    return {
        "OPENAI_BASE_URL": f"http://127.0.0.1:{port}/v1",
        "OPENAI_API_KEY": rollout.key,
        "OPENAI_MODEL": state["model"],
        "VF_PROMPT_FILE": _prompt_file(rollout.sandbox),
    }


def _how(result: ExecResult, words: str) -> str:
    """How a program ended, with the last lines of what it said."""
    how = f"signal {result.signal}" if result.exit_code is None else f"exit code {result.exit_code}"
    if result.limit is not None:
        how += f", limit {result.limit}"
    lines = " | ".join(words.strip().splitlines()[-5:])
    return f"{how}: {lines[-1000:]}" if lines else how


async def _opened(name: str, unsafe: bool) -> SandboxBackend:
    from verifiers.sandbox import LocalBackend, open_backend

    # below level 2 a program has no loopback to reach its model by
    backend = open_backend(name, **({"min_level": 2} if name in ("auto", "local") else {}))
    try:
        await backend.capabilities()
        return backend
    except SetupError as error:
        await backend.close()
        if not unsafe:
            raise NoSandboxError(f"{error} (an agent needs level 2; unsafe=True runs it as a plain process)") from error
    return LocalBackend(unsafe=True, max_level=0)
