"""`CodeRubric`: whether the program in the reply passes the tests of its problem."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from verifiers.errors import RewardFault, SandboxError
from verifiers.parsers import Parser
from verifiers.rubrics.code_engine import CodeEngine, engine_of
from verifiers.rubrics.code_output import same_value, text_difference
from verifiers.rubrics.code_problem import CodeProblem, CodeTest, read_problem
from verifiers.rubrics.code_program import FunctionCall, NoProgram, last_program, script_of
from verifiers.rubrics.graded import Graded
from verifiers.rubrics.rubric import Rubric
from verifiers.sandbox.limits import SandboxLimits
from verifiers.sandbox.sandbox import ExecResult, SandboxBackend

Checker = Callable[[CodeTest, Any], bool]

_CANARY, _CANARY_SAYS = "print(6 * 7)", b"42\n"


class CodeRubric(Rubric):
    """Rewards a program that passes every test: 1.0 or 0.0, as the metric `passes_tests`.

    The program is the last closed code block of the reply; the tests lie in the row's `info` or `answer`. Each test
    is a run of its own in `engine`, which never sees what is expected; the first failure ends the grading. A limit that
    the program itself exceeds is wrong, with a reason; a sandbox that fails is a fault.

    >>> import asyncio
    >>> from verifiers.types import State
    >>> rubric = CodeRubric(engine="unsafe-local")
    >>> info = {"tests": [{"input": "2 3", "output": "5"}]}
    >>> reply = "```python\\nprint(sum(map(int, input().split())))\\n```"
    >>> state = State(input={"prompt": "Add them.", "info": info}, completion=reply)
    >>> asyncio.run(rubric.score_rollout(state)); state["reward"]
    1.0
    """

    def __init__(
        self,
        funcs: Sequence[Callable[..., Any]] | None = None,
        weights: Sequence[float] | None = None,
        parser: Parser | None = None,
        engine: CodeEngine | str | None = None,
        *,
        max_tests: int | None = None,
        seed: int = 0,
        time_limit_s: float = 6.0,
        memory_mb: int = 1024,
        output_kb: int = 16_384,
        budget_s: float | None = None,
        float_tolerance: float | None = None,
        checkers: Mapping[str, Checker] | None = None,
        **attributes: Any,
    ) -> None:
        """`engine`: a sandbox backend, "local" or "unsafe-local". `max_tests`: so many of a problem's tests, the same
        ones for every try. `budget_s`: of all tests together; `None`: a second a test more than their limits. A row's
        `time_limit_s`, `memory_mb`, `float_tolerance` and `checker` (a name in `checkers`) are stronger.
        """
        super().__init__(funcs=funcs, weights=weights, parser=parser, **attributes)
        self.engine = engine_of(engine)
        self._closes_engine = isinstance(engine, str)
        self.max_tests, self.seed = max_tests, seed
        self.time_limit_s, self.memory_mb, self.output_kb = time_limit_s, memory_mb, output_kb
        self.budget_s, self.float_tolerance = budget_s, float_tolerance
        self.checkers = dict(checkers or {})
        self.add_reward_func(self.passes_tests)

    async def passes_tests(self, parser: Parser, completion: Any, answer: Any, info: Any, **kwargs: Any) -> float:
        """Raises RewardFault for a row whose tests cannot be run, SandboxError when the engine fails."""
        problem = await asyncio.to_thread(self._problem, info, answer)
        response = parser.parse_answer(completion)
        try:
            source = last_program("" if response is None else str(response))
        except NoProgram as error:
            return Graded(0.0, str(error))
        return await self.grade(source, problem)

    async def grade(self, source: str, problem: CodeProblem) -> float:
        """Runs one test after the other."""
        job = _Job(self, source, problem)
        spent_s = 0.0
        for number, test in enumerate(problem.tests, 1):
            wrong, seconds = await job.run(test)
            spent_s += seconds
            if wrong is None and spent_s > job.budget_s:
                wrong = f"the tests together took more than {job.budget_s:g} s"
            if wrong is not None:
                return Graded(0.0, f"test {number} of {len(problem.tests)}: {wrong}")
        return 1.0

    async def check_setup(self) -> None:
        """That the engine can run programs here."""
        await super().check_setup()
        if isinstance(self.engine, SandboxBackend):
            await self.engine.capabilities()

    async def teardown(self) -> None:
        await super().teardown()
        if self._closes_engine and hasattr(self.engine, "close"):
            await self.engine.close()  # type: ignore[attr-defined]

    def _problem(self, info: Any, answer: Any) -> CodeProblem:
        problem = read_problem(info, answer)
        if problem.checker is not None and problem.checker not in self.checkers:
            known = ", ".join(sorted(self.checkers)) or "none"
            raise RewardFault(f"the row asks for the checker {problem.checker!r}; the rubric has {known}")
        return problem if self.max_tests is None else problem.sampled(self.max_tests, self.seed)


class _Job:
    """One program against the tests of one problem."""

    def __init__(self, rubric: CodeRubric, source: str, problem: CodeProblem) -> None:
        self.engine, self.source, self.problem = rubric.engine, source, problem
        time_limit_s = problem.time_limit_s or rubric.time_limit_s
        self.limits = SandboxLimits(
            wall_s=time_limit_s, memory_mb=problem.memory_mb or rubric.memory_mb, output_kb=rubric.output_kb
        )
        self.budget_s = rubric.budget_s or (time_limit_s + 1) * len(problem.tests) + 5
        self.tolerance = rubric.float_tolerance if problem.float_tolerance is None else problem.float_tolerance
        self.checker = None if problem.checker is None else rubric.checkers[problem.checker]

    async def run(self, test: CodeTest) -> tuple[str | None, float]:
        """What is wrong, or `None`; and the seconds the program took."""
        if test.args is None:
            result = await self.engine.run_once(script_of(self.source), stdin=test.input, limits=self.limits)
            call = None
        else:
            assert self.problem.function is not None  # as read_problem promises
            call = FunctionCall(self.source, self.problem.function, test)
            result = await self.engine.run_once(call.script, stdin=call.stdin, limits=self.limits)
        if result.outcome == "ok":
            return await asyncio.to_thread(self._difference, test, call, result.stdout), result.wall_s
        wrong = _ending(result) if result.limit is None else await self._limit(result)
        return wrong, result.wall_s

    async def _limit(self, result: ExecResult) -> str:
        """The program's own doing, if the engine still runs a known simple one."""
        if result.limit == "wall":
            canary = await self.engine.run_once(_CANARY, limits=self.limits)
            if canary.outcome != "ok" or canary.stdout != _CANARY_SAYS:
                raise SandboxError(f"a test ran out of time, and so does a known simple program: {_ending(canary)}")
        allowed = {"wall": f" of {self.limits.wall_s:g} s", "memory": f" of {self.limits.memory_mb} MB"}
        return f"{result.outcome}{allowed.get(result.limit or '', '')}"

    def _difference(self, test: CodeTest, call: FunctionCall | None, stdout: bytes) -> str | None:
        try:
            found = stdout.decode("utf-8", "replace") if call is None else call.result(stdout)
        except NoProgram as error:
            return str(error)
        if self.checker is not None:
            return None if self.checker(test, found) else "the checker refuses it"
        if call is None:
            return text_difference(test.expected, found, self.tolerance)
        return None if same_value(test.expected, found, self.tolerance) else "it returned another value"


def _ending(result: ExecResult) -> str:
    """How a program ended, with the last line it complained in."""
    how = f"exit {result.exit_code}" if result.exit_code is not None else f"signal {result.signal}"
    said = result.error_text.strip().rpartition("\n")[2][:200]
    return f"{result.limit or how}: {said}" if said else result.limit or how
