"""`ReasoningGymEnv`: the generated tasks of Reasoning Gym, scored by their own scorers."""

from __future__ import annotations

import difflib
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from verifiers.adapters.extras import require
from verifiers.envs.singleturn_env import SingleTurnEnv
from verifiers.errors import ConfigError
from verifiers.parsers import Parser, XMLParser
from verifiers.rubrics import Graded, Rubric

SYSTEM_PROMPT = (
    "Work the task out step by step. Then give the final answer, and nothing else, between <answer> and </answer>, "
    "in exactly the form that the task asks for."
)


class ReasoningGymEnv(SingleTurnEnv):
    """One dataset by name, or several: names, or dicts with `name` and perhaps `weight` and `config`.

        env = vf.ReasoningGymEnv("arc_1d", num_train_examples=2000, num_eval_examples=100)
        env = vf.ReasoningGymEnv(["leg_counting", {"name": "chain_sum", "weight": 2, "config": {"max_terms": 4}}])

    Tasks are made from `seed` when rows are first asked for, evaluation tasks after those for training. The reward is
    what the dataset's scorer gives the text in the `<answer>` tags, from 0 to 1; without an answer it is 0. Pass
    `parser` to read answers otherwise.
    """

    def __init__(
        self,
        gym: str | Sequence[str | Mapping[str, Any]],
        num_train_examples: int = 1000,
        num_eval_examples: int = 100,
        system_prompt: str = SYSTEM_PROMPT,
        parser: Parser | None = None,
        seed: int = 0,
        rubric: Rubric | None = None,
        **kwargs: Any,
    ) -> None:
        require("reasoning_gym", "reasoning-gym", "ReasoningGymEnv")
        self.gym, self.seed = gym, seed
        self.num_train_examples = max(num_train_examples, 0)
        self.num_eval_examples = max(num_eval_examples, 0)
        if not self.num_train_examples + self.num_eval_examples:
            raise ConfigError("ReasoningGymEnv needs num_train_examples or num_eval_examples above 0")
        parser = parser or XMLParser(["answer"])
        super().__init__(
            dataset=self._tasks(0, self.num_train_examples),
            eval_dataset=self._tasks(self.num_train_examples, self.num_eval_examples),
            system_prompt=system_prompt,
            parser=parser,
            rubric=rubric or Rubric([self.dataset_score], parser=parser),
            **kwargs,
        )

    _dataset: Any = None
    _making = threading.Lock()  # two threads may ask for the first task at once

    @property
    def rg_dataset(self) -> Any:
        """The `ProceduralDataset` of the library; made on first use, since its import takes a while."""
        with self._making:
            if self._dataset is None:
                size = self.num_train_examples + self.num_eval_examples
                self._dataset = made(self.gym, size, self.seed)
            return self._dataset

    def dataset_score(self, completion: Any, info: dict[str, Any]) -> float:
        answer = self.parser.parse_answer(completion)
        if answer is None or not str(answer).strip():
            return Graded(0.0, "no answer")
        # the task is made again from its number: what a scorer wants of it need not fit in a row
        task = self.rg_dataset[int(info["index"])]
        try:
            return float(self.rg_dataset.score_answer(answer=str(answer).strip(), entry=task))
        except Exception as error:
            # Scorers take answers apart and some stumble over odd ones. The model must not get out of a wrong answer
            # that way; but where the scorer fails its own answer too, it is the scorer that is broken.
            self.rg_dataset.score_answer(answer=str(task["answer"]), entry=task)
            return Graded(0.0, f"the scorer cannot read the answer ({type(error).__name__})")

    def _tasks(self, first: int, count: int) -> Callable[[], list[dict[str, Any]]] | None:
        if not count:
            return None
        return lambda: [self._row(index) for index in range(first, first + count)]

    def _row(self, index: int) -> dict[str, Any]:
        task = self.rg_dataset[index]
        answer, kind = task.get("answer"), (task.get("metadata") or {}).get("source_dataset")
        info = {"index": index, **({"dataset": str(kind)} if kind else {})}
        return {"question": task["question"], "answer": "" if answer is None else str(answer), "info": info}


def made(gym: str | Sequence[str | Mapping[str, Any]], size: int, seed: int) -> Any:
    """The library's dataset: one, or a weighted mixture. Raises ConfigError for what it does not have or refuses."""
    with warnings.catch_warnings():  # one of its dependencies has a slip that newer Pythons warn of
        warnings.simplefilter("ignore")
        import reasoning_gym  # pyright: ignore[reportMissingImports]
        from reasoning_gym.composite import DatasetSpec  # pyright: ignore[reportMissingImports]
        from reasoning_gym.factory import DATASETS  # pyright: ignore[reportMissingImports]

    given = [gym] if isinstance(gym, (str, Mapping)) else list(gym)
    specs: list[dict[str, Any]] = [{"name": one} if isinstance(one, str) else dict(one) for one in given]
    if not specs:
        raise ConfigError("ReasoningGymEnv needs the name of at least one dataset")
    for spec in specs:
        name = spec.get("name")
        if name not in DATASETS:
            near = ", ".join(difflib.get_close_matches(str(name), DATASETS, n=3, cutoff=0.5))
            raise ConfigError(
                f"Reasoning Gym has no dataset '{name}'" + (f". Is one of these meant: {near}?" if near else "")
            )
        if unknown := sorted(set(spec) - {"name", "weight", "config"}):
            raise ConfigError(f"a Reasoning Gym dataset has no '{unknown[0]}'; it has: name, weight, config")
    try:
        if isinstance(gym, str):
            return reasoning_gym.create_dataset(gym, size=size, seed=seed)
        parts = [DatasetSpec(s["name"], s.get("weight", 1.0), dict(s.get("config") or {})) for s in specs]
        return reasoning_gym.create_dataset("composite", size=size, seed=seed, datasets=parts)
    except (AssertionError, TypeError, ValueError) as error:
        raise ConfigError(f"Reasoning Gym refuses {gym!r}: {error}") from error
