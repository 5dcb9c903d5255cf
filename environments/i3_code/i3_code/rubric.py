"""`ProgramRubric`: the library's rubric for code, with the tests where these rows have them, and with HumanEval's."""

from __future__ import annotations

from typing import Any

import verifiers as vf
from i3_code import human_eval
from i3_code.published_tests import or_its_only_element
from verifiers.rubrics.code_program import NoProgram, last_program


class ProgramRubric(vf.CodeRubric):
    """Tests lie in the row's column `problem` and not in `info`: those of some rows have megabytes, and `info` is
    saved with each rollout."""

    def __init__(self, engine: Any, **settings: Any) -> None:
        super().__init__(engine=engine, checkers={"or_its_only_element": or_its_only_element}, **settings)
        # by function and check, of HumanEval's rows: the same for every try
        self._checked_calls: dict[tuple[str, str], list[Any]] = {}

    async def passes_tests(self, parser: vf.Parser, completion: Any, answer: Any, info: Any, **kwargs: Any) -> float:
        """Raises RewardFault for a row whose tests cannot be run, SandboxError when the engine fails."""
        problem = kwargs["state"]["input"]["problem"]
        if not isinstance(problem, dict) or "entry_point" not in problem:
            return await super().passes_tests(parser, completion, answer, problem)
        try:
            source = last_program(str(parser.parse_answer(completion) or ""))
        except NoProgram as error:
            return vf.Graded(0.0, str(error))
        limits = vf.SandboxLimits(wall_s=self.time_limit_s, memory_mb=self.memory_mb, output_kb=self.output_kb)
        key = problem["entry_point"], problem["test"]
        if key not in self._checked_calls:
            self._checked_calls[key] = await human_eval.calls_of(self.engine, limits, problem)
        return await human_eval.grade(self.engine, limits, source, problem, self._checked_calls[key])
