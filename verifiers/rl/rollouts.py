"""`EnvRollouts`: one environment for a trainer that owns the loop: its rows as prompts, and rollouts of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

from verifiers.dataset import as_hf_dataset
from verifiers.envs.environment import Environment
from verifiers.errors import ConfigError
from verifiers.installed import env_info
from verifiers.loading import env_args_hash, load_environment
from verifiers.recording import Origin
from verifiers.records import EnvInfo, RolloutRecord, content_hash
from verifiers.run import Run
from verifiers.types import RolloutInput

Split = Literal["train", "eval"]


class EnvRollouts:
    """`env`: an environment's id, loaded with `env_args`, or the environment itself.

    A row is found again by its prompt, because that is all that some trainers hand on. Raises SetupError when the
    environment cannot be loaded, ConfigError for two rows of one prompt and different answers.

    >>> rollouts = EnvRollouts("reverse-letters", env_args={"letters": 5})
    >>> records = await rollouts.run([rollouts.rows[0]] * 8, client)
    """

    def __init__(
        self,
        env: Environment | str,
        *,
        env_args: Mapping[str, Any] | None = None,
        n: int = -1,
        split: Split = "train",
        max_retries: int = 2,
        rollout_timeout_s: float | None = None,
        max_concurrent: int = -1,
        seed: int = 0,
    ) -> None:
        args = dict(env_args or {})
        if isinstance(env, str):
            self.env, self.name = load_environment(env, **args), env
            self.origin = Origin(env=env_info(env), args_hash=env_args_hash(args))
        else:
            self.env, self.name = env, env.env_id or type(env).__name__
            self.origin = Origin(env=EnvInfo(name=self.name))
        self.rows: list[RolloutInput] = self.env.train_rows(n) if split == "train" else self.env.eval_rows(n)
        self.max_retries, self.rollout_timeout_s = max_retries, rollout_timeout_s
        self.max_concurrent, self.seed = max_concurrent, seed
        self._runs = 0
        self._by_prompt: dict[str, RolloutInput] = {}
        for row in self.rows:
            other = self._by_prompt.setdefault(_key(row["prompt"]), row)
            if other.get("answer") != row.get("answer") or other.get("info") != row.get("info"):
                raise ConfigError(
                    f"rows {other['example_id']} and {row['example_id']} of {self.name} have the same prompt and "
                    "different answers: a trainer that hands on prompts cannot tell them apart; leave one out"
                )

    def row_of(self, prompt: Any) -> RolloutInput:
        """The row of a prompt (messages or a text). Raises ConfigError for one that is none of the environment's."""
        row = self._by_prompt.get(_key(prompt))
        if row is None:
            raise ConfigError(
                f"{self.name} has no row with the prompt {prompt!s:.120}; train on the dataset that the adapter gives"
            )
        return row

    def prompts(self) -> list[dict[str, Any]]:
        """`{"prompt": messages, "example_id": int}` of each row."""
        return [{"prompt": _plain(row["prompt"]), "example_id": row["example_id"]} for row in self.rows]

    def dataset(self) -> Any:
        """`prompts` as a `datasets.Dataset`, the shape that most trainers read."""
        return as_hf_dataset(cast(list[RolloutInput], self.prompts()))

    async def run(
        self,
        rows: Sequence[RolloutInput],
        client: Any,
        *,
        model: str = "policy",
        sampling: Mapping[str, Any] | None = None,
        max_concurrent: int | None = None,
        max_retries: int | None = None,
    ) -> list[RolloutRecord]:
        """One rollout for each of `rows`, scored, in their order. A row that occurs G times has G tries, as a group.

        `client`: a `Client`, `Endpoint`, OpenAI client or URL. A rollout that failed is a record that says so. Raises
        what concerns all of them: a wrong key, an unknown model.
        """
        self._runs += 1
        run = Run(
            self.env,
            rows,
            client=client,
            model=model,
            sampling_args=sampling,
            max_concurrent=self.max_concurrent if max_concurrent is None else max_concurrent,
            max_retries=self.max_retries if max_retries is None else max_retries,
            seed=self.seed + self._runs,  # else an engine that takes seeds would say the same in every epoch
            origin=self.origin,
            rollout_timeout_s=self.rollout_timeout_s,
        )
        records = {record.key: record for record in await run.execute()}
        if run.fatal is not None:
            raise run.fatal
        tries: Counter[int] = Counter()
        found: list[RolloutRecord] = []
        for row in rows:
            example_id = row["example_id"]
            found.append(records[example_id, tries[example_id]])
            tries[example_id] += 1
        return found


def _plain(prompt: Any) -> Any:
    """A prompt without the fields that a table adds to some of its messages."""
    if isinstance(prompt, str):
        return prompt
    return [{name: value for name, value in message.items() if value is not None} for message in prompt]


def _key(prompt: Any) -> str:
    return content_hash(_plain(prompt))
