"""`Environment`: a dataset of tasks, a way to roll one out, and a rubric. The base of all others."""

from __future__ import annotations

import asyncio
import atexit
import difflib
import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from random import getrandbits
from typing import Any

from verifiers.attempt import Attempt
from verifiers.calls import run_sync
from verifiers.clients.client import ModelRequest
from verifiers.compat import shapes, signatures
from verifiers.compat.late import also_plain
from verifiers.compat.old_environment_names import OldEnvironmentNames
from verifiers.dataset import DatasetBuilder, RowFormat, Splits, decoded_info, own_copy
from verifiers.decorators import marked
from verifiers.errors import ConfigError
from verifiers.parsers import Parser
from verifiers.rubrics import Rubric, RubricGroup
from verifiers.tools import as_tool
from verifiers.types import MessageType, Response, RolloutInput, SamplingArgs, State, Tool, as_messages

logger = logging.getLogger("verifiers")


class Environment(OldEnvironmentNames):
    """Subclass `MultiTurnEnv` (or use `SingleTurnEnv`, `ToolEnv`); override `rollout` only for a loop of your own.

    `dataset` and `eval_dataset` are rows, a `datasets.Dataset`, or a callable that builds one on first use.
    Unknown keywords become attributes, as published environments expect.
    """

    def __init__(
        self,
        dataset: Any | DatasetBuilder | None = None,
        eval_dataset: Any | DatasetBuilder | None = None,
        system_prompt: str | None = None,
        few_shot: Sequence[Any] | None = None,
        parser: Parser | None = None,
        rubric: Rubric | None = None,
        sampling_args: SamplingArgs | None = None,
        message_type: MessageType = "chat",
        tool_defs: Sequence[Any] | None = None,
        oai_tools: Sequence[Any] | None = None,
        max_workers: int = 512,
        env_id: str | None = None,
        env_args: dict[str, Any] | None = None,
        map_kwargs: dict[str, Any] | None = None,
        max_seq_len: int | None = None,
        score_rollouts: bool = True,
        pass_threshold: float = 0.5,
        **attributes: Any,
    ) -> None:
        if dataset is None and eval_dataset is None:
            raise ValueError(
                f"{type(self).__name__} needs a dataset or an eval_dataset: rows with 'question' or 'prompt'"
            )
        if rubric is not None and not isinstance(rubric, Rubric):
            raise TypeError(f"rubric must be a vf.Rubric, got {type(rubric).__name__}")
        if parser is None:
            parser = rubric.parser if rubric is not None and type(rubric.parser) is not Parser else Parser()
        self.system_prompt = system_prompt
        self.few_shot = as_messages(few_shot) if few_shot else []
        self.parser = parser
        self.rubric: Rubric = rubric if rubric is not None else Rubric(parser=parser)
        self.message_type: MessageType = message_type
        self.tool_defs: list[Tool] | None = [as_tool(t) for t in tool_defs or oai_tools or ()] or None
        self.sampling_args: SamplingArgs = _merged({"n": 1, "extra_body": {}}, sampling_args)
        self.max_workers = max_workers
        self.env_id = env_id or ""
        self.env_args = env_args or {}
        self.map_kwargs = map_kwargs or {}
        self.max_seq_len = max_seq_len
        self.score_rollouts = score_rollouts
        self.pass_threshold = pass_threshold
        self.logger = logger
        self.row_splits = Splits(self._as_the_author_formats(dataset), self._as_the_author_formats(eval_dataset))
        self.row_splits.check(self.row_format())
        for name, value in attributes.items():
            _note_unknown(type(self), name)
            setattr(self, name, value)
        self._is_torn_down = False
        if self._teardown_handlers():
            atexit.register(self._teardown_at_exit)

    # ---- dataset ----

    def row_format(self) -> RowFormat:
        """How this environment turns a raw row into a prompt."""
        return RowFormat(self.system_prompt, self.few_shot, self.message_type, self.env_id or "default")

    def train_rows(self, n: int = -1, seed: int | None = None) -> list[RolloutInput]:
        """The first `n` training rows, formatted (-1: all); `seed` shuffles first."""
        return self.row_splits.rows("train", self.row_format(), n, seed)

    def eval_rows(self, n: int = -1, seed: int | None = None) -> list[RolloutInput]:
        """The first `n` evaluation rows (training rows when there are no others), formatted."""
        return self.row_splits.rows("eval", self.row_format(), n, seed)

    def get_dataset(self, n: int = -1, seed: int | None = None) -> Any:
        """The training rows as a `datasets.Dataset`; `seed` shuffles the environment's own order for good."""
        return self.row_splits.hf_dataset("train", self.row_format(), n, seed)

    def get_eval_dataset(self, n: int = -1, seed: int | None = None) -> Any:
        """As `get_dataset`, of the evaluation rows; of the training rows, with a warning, when there are no others."""
        if not self.row_splits.has("eval"):
            logger.warning("%s has no eval_dataset; its training dataset serves", type(self).__name__)
        return self.row_splits.hf_dataset("eval", self.row_format(), n, seed)

    @property
    def dataset(self) -> Any:
        return self.get_dataset() if self.row_splits.has("train") else None

    @dataset.setter
    def dataset(self, source: Any) -> None:
        self.row_splits.replace("train", source)

    @property
    def eval_dataset(self) -> Any:
        return self.get_eval_dataset() if self.row_splits.has("eval") else None

    @eval_dataset.setter
    def eval_dataset(self, source: Any) -> None:
        self.row_splits.replace("eval", source)

    # ---- one rollout ----

    async def init_state(
        self, input: RolloutInput, client: Any, model: str, sampling_args: SamplingArgs | None = None
    ) -> State:
        """The state at the start of a rollout. The row is copied: no rollout sees another's changes."""
        row = own_copy(input) if type(input) is dict else own_copy(dict(input))
        prompt = shapes.prompt_messages(row.get("prompt"), self.message_type)
        row["prompt"] = shapes.prompt_text(prompt) if self.message_type == "completion" else prompt
        if "info" in row:
            row["info"] = decoded_info(row["info"])
        state = State(
            input=row,
            client=client,
            model=model,
            sampling_args=_merged(self.sampling_args, sampling_args),
            is_completed=False,
            is_truncated=False,
            stop_condition=None,
            trajectory=[],
            trajectory_id=f"{getrandbits(128):032x}",
            reward=None,
            metrics=None,
            scores=None,
            error=None,
            final_env_response=None,
            usage=None,
        )
        info = row.get("info")
        own_tools = shapes.info_tools(info) if info else None
        state["tool_defs"] = [as_tool(t) for t in own_tools] if own_tools else self.tool_defs
        state.attempt = Attempt.begin(prompt)
        state.seed = state.attempt.plan.seed
        state["timing"] = {
            "start_time": state.attempt.clock.started_at,
            "generation_ms": 0.0,
            "scoring_ms": 0.0,
            "total_ms": 0.0,
        }
        return state

    @property
    def oai_tools(self) -> list[Any] | None:
        """The tools in the shape that chat completions expect; the name of `tool_defs` before 0.1.11."""
        return [as_tool(tool).wire() for tool in self.tool_defs] if self.tool_defs else None

    @oai_tools.setter
    def oai_tools(self, tools: Sequence[Any] | None) -> None:
        self.tool_defs = [as_tool(tool) for tool in tools or ()] or None

    async def rollout(
        self,
        input: RolloutInput | Any = None,
        client: Any = None,
        model: Any = None,
        sampling_args: SamplingArgs | Any = None,
        *of_old: Any,
        **named: Any,
    ) -> Any:
        """One rollout, unscored. `MultiTurnEnv` has the loop."""
        raise NotImplementedError(f"{type(self).__name__} has no rollout loop; subclass vf.MultiTurnEnv")

    async def get_model_response(
        self,
        state: State | Any = None,
        prompt: Any = None,
        client: Any = None,
        model: Any = None,
        tool_defs: Any = None,
        sampling_args: Any = None,
        message_type: Any = None,
        oai_tools: Sequence[Any] | None = None,
        **_: Any,
    ) -> Response:
        """One model call. What is not given is taken from the state.

        Code of before 0.1.8 calls it with `(client, model, prompt, oai_tools, sampling_args, message_type)`.
        Raises OverlongPromptError when the context is full, another ModelError when there is no reply to be had.
        """
        if not isinstance(state, State):
            given = (state, prompt, client, model, tool_defs, sampling_args)
            return await signatures.response_as_of_old(
                self, partial(Environment.get_model_response, self), given, message_type, oai_tools
            )
        attempt: Attempt = state.attempt
        tools = tool_defs if tool_defs is not None else oai_tools if oai_tools is not None else state.get("tool_defs")
        args = shapes.sampling(sampling_args if sampling_args is not None else state["sampling_args"])
        attempt.limit_tokens(args)
        request = ModelRequest(
            model=model or state["model"],
            messages=prompt if isinstance(prompt, list) else as_messages(prompt),
            sampling=args,
            tools=[as_tool(t) for t in tools] if tools else None,
            seed=state.seed,
            budget_s=attempt.clock.remaining_s,
            affinity=state["trajectory_id"],
        )
        waited = client if client is not None else state["client"]
        asked = (request.model, waited, request.tools)
        request.seen = attempt.seen_in(request.messages, asked)
        attempt.asked = asked
        response = await attempt.client(waited, message_type or self.message_type).complete(request)
        attempt.clock.queue_s += response.queue_s
        attempt.clock.model_s += response.model_s
        return response

    # ---- many rollouts ----

    async def run_rollout(
        self, input: RolloutInput, client: Any, model: str, sampling_args: SamplingArgs | None = None, **options: Any
    ) -> Any:
        """One rollout, scored, as a classic output dict."""
        return (await self.run_group([input], client, model, sampling_args, **options))[0]

    async def run_group(
        self,
        group_inputs: Sequence[RolloutInput],
        client: Any,
        model: str,
        sampling_args: SamplingArgs | None = None,
        max_retries: int = 0,
        state_columns: Sequence[str] | None = None,
        **_: Any,
    ) -> list[Any]:
        """The rollouts of one example, scored together, as classic output dicts."""
        results = await self.generate(
            list(group_inputs), client, model, sampling_args, max_retries=max_retries, state_columns=state_columns
        )
        return results["outputs"]

    @also_plain
    async def generate(
        self,
        inputs: Any,
        client: Any = None,
        model: str | None = None,
        sampling_args: SamplingArgs | None = None,
        max_concurrent: int = -1,
        results_path: Path | str | None = None,
        state_columns: Sequence[str] | None = None,
        save_results: bool = False,
        independent_scoring: bool = False,
        max_retries: int = 0,
        on_start: Callable[..., Any] | None = None,
        on_progress: Any = None,
        on_log: Callable[[str], Any] | None = None,
        seed: int = 0,
        rollout_timeout_s: float | None = None,
        score_rollouts: bool = True,
        **_: Any,
    ) -> Any:
        """Rolls out and scores every input; rows of equal `example_id` are tries of one example.

        Returns results that read as `{"outputs": [...], "metadata": {...}}` and, as in older releases, by column.
        `max_concurrent` counts rollouts in flight; -1 is all at once. With `save_results` every rollout is on disk as
        soon as it ends. Raises AuthenticationError and ModelNotFoundError: these concern every rollout.
        """
        from verifiers.compat.results import generate as run

        client = client if client is not None else getattr(self, "client", None)  # attributes of 0.1.3
        model = model or getattr(self, "model", None)
        if model is None:
            raise ConfigError("generate needs a model's name: generate(inputs, client, model)")
        return await run(
            self, inputs, client, model, sampling_args, max_concurrent=max_concurrent, results_path=results_path,
            score=score_rollouts,
            state_columns=state_columns, save_results=save_results, independent_scoring=independent_scoring,
            max_retries=max_retries, on_start=on_start, on_progress=on_progress, on_log=on_log, seed=seed,
            rollout_timeout_s=rollout_timeout_s,
        )  # fmt: skip

    @also_plain
    async def evaluate(
        self,
        client: Any,
        model: str,
        sampling_args: SamplingArgs | None = None,
        num_examples: int = -1,
        rollouts_per_example: int = 1,
        max_concurrent: int = -1,
        results_path: Path | str | None = None,
        state_columns: Sequence[str] | None = None,
        save_results: bool = False,
        independent_scoring: bool = False,
        max_retries: int = 0,
        on_start: Callable[..., Any] | None = None,
        on_progress: Any = None,
        on_log: Callable[[str], Any] | None = None,
        **options: Any,
    ) -> Any:
        """`generate` over the evaluation rows, each tried `rollouts_per_example` times."""
        # in a thread: a builder may download, and thousands of rows take a while to format
        rows = await asyncio.to_thread(self.eval_rows, num_examples)
        return await self.generate(
            [row for row in rows for _ in range(rollouts_per_example)], client, model, sampling_args,
            max_concurrent=max_concurrent, results_path=results_path, state_columns=state_columns,
            save_results=save_results, independent_scoring=independent_scoring, max_retries=max_retries,
            on_start=on_start, on_progress=on_progress, on_log=on_log, **options,
        )  # fmt: skip

    async def a_generate(self, inputs: Any, *args: Any, **options: Any) -> Any:
        """`generate` by the name it had before 0.1.8."""
        return await self.generate(inputs, *args, **options)

    def generate_sync(self, inputs: Any, client: Any = None, *args: Any, **options: Any) -> Any:
        return run_sync(self.generate(inputs, client, *args, **options))

    def evaluate_sync(self, client: Any, model: str, *args: Any, **options: Any) -> Any:
        return run_sync(self.evaluate(client, model, *args, **options))

    def process_env_results_vllm(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        states: Sequence[Any],
        rewards: Sequence[float | None],
        processing_class: Any = None,
        max_seq_len: int = -1,
        mask_env_responses: bool = False,
        mask_truncated_completions: bool = False,
        zero_truncated_completions: bool = False,
        **_: Any,
    ) -> Any:
        """Rollouts as token lists for a trainer of 0.1.3-0.1.7. The tokens are the server's own, none are made here."""
        from verifiers.compat.training import processed_outputs

        return processed_outputs(
            states, rewards, max_seq_len=max_seq_len, mask_env_responses=mask_env_responses,
            mask_truncated_completions=mask_truncated_completions,
            zero_truncated_completions=zero_truncated_completions,
        )  # fmt: skip

    # ---- settings that trainers change ----

    def set_kwargs(self, **settings: Any) -> None:
        """Sets attributes, by `set_<name>` where there is one."""
        for name, value in settings.items():
            setter = getattr(self, f"set_{name}", None)
            setter(value) if callable(setter) else setattr(self, name, value)

    def add_rubric(self, rubric: Rubric) -> None:
        """Scores with `rubric` as well; rewards add up."""
        if isinstance(self.rubric, RubricGroup):
            self.rubric.rubrics.append(rubric)
        else:
            self.rubric = RubricGroup([self.rubric, rubric])

    def set_max_seq_len(self, max_seq_len: int | None) -> None:
        self.max_seq_len = max_seq_len

    def set_score_rollouts(self, score_rollouts: bool) -> None:
        self.score_rollouts = score_rollouts

    def set_interleaved_rollouts(self, interleaved_rollouts: bool) -> None:
        """Accepted for trainers of the classic API; turns are always linked by their token prefixes here."""
        self.interleaved_rollouts = interleaved_rollouts

    def set_concurrency(self, concurrency: int) -> None:
        self.max_workers = concurrency

    # ---- end ----

    def _teardown_handlers(self) -> list[Callable[..., Any]]:
        return marked(self, "teardown")

    async def teardown(self) -> None:
        """Runs the `@vf.teardown` methods once, whatever one of them raises."""
        if self._is_torn_down:
            return
        self._is_torn_down = True
        for handler in [*self._teardown_handlers(), self.rubric.teardown]:
            try:
                result = handler()
                if inspect.isawaitable(result):
                    await result
            except Exception:
                logger.exception("teardown %s failed", getattr(handler, "__name__", handler))

    def _teardown_at_exit(self) -> None:
        if not self._is_torn_down:
            asyncio.run(self.teardown())


def _merged(base: Mapping[str, Any], given: Mapping[str, Any] | None) -> dict[str, Any]:
    """`given` over `base`; the two `extra_body` are joined."""
    made = {**base, **(given or {})}
    if base.get("extra_body") or (given or {}).get("extra_body"):
        made["extra_body"] = {**(base.get("extra_body") or {}), **((given or {}).get("extra_body") or {})}
    return made


def _note_unknown(kind: type, name: str) -> None:
    """Unknown keywords become attributes, since published environments rely on it; a likely misspelling is said."""
    known = {p for c in kind.__mro__ if "__init__" in vars(c) for p in inspect.signature(c.__init__).parameters}
    near = difflib.get_close_matches(name, known - {"self", "kwargs", "attributes"}, n=1, cutoff=0.85)
    if near:
        logger.warning("%s: unknown keyword '%s' is kept as an attribute; is '%s' meant?", kind.__name__, name, near[0])
    else:
        logger.debug("%s: unknown keyword '%s' is kept as an attribute", kind.__name__, name)
