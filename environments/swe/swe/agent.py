"""`SWEAgentEnv`: an agent that is a program of its own mends the repository; the grading is that of `SWEEnv`."""

from __future__ import annotations

from typing import Any

import verifiers as vf
from swe.own import OwnRepositories
from verifiers.rubrics.swe_repository import check_out, take_diff
from verifiers.rubrics.swe_task import read_task

PROMPT = """The working folder holds a repository that has this problem:

<problem>
{problem}
</problem>

Change the repository so that the problem is solved. Look at the code first, reproduce the problem, and check your
change. Tests that you do not see will be run on the result; changes of tests and of their configuration count for
nothing."""

# its trajectory is kept out of the repository: it would be part of the diff
MINI_SWE_AGENT = (
    'python3 -m minisweagent.run.mini -y --exit-immediately -l 0 -m "openai/$OPENAI_MODEL" '
    '-t "$(cat "$VF_PROMPT_FILE")" -o "${VF_PROMPT_FILE%/*}/.mini-swe-agent.json"'
)
_VARIABLES = {
    "MSWEA_CONFIGURED": "true",
    "MSWEA_COST_TRACKING": "ignore_errors",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
}


class SWEAgentEnv(vf.AgentEnv):
    """Runs `command`, a line for the shell, in the repository's folder. Rows, sandboxes and verdict are `SWEEnv`'s.

    The diff is taken when the agent has ended, whichever way it did; the sandbox ends, and the diff is graded in a
    fresh one.
    """

    def __init__(
        self, command: str, *, dataset: Any = None, eval_dataset: Any = None, backend: str = "local", **kwargs: Any
    ) -> None:
        # an agent reaches its model by the sandbox's loopback, which there is from level 2 on
        self._local = vf.LocalBackend(min_level=2, packages=True) if backend == "local" else None
        self.swe = vf.SWEEnv(dataset=dataset, eval_dataset=eval_dataset, backend=self._local or backend, prompt=PROMPT)
        self.swe.swe_rubric.repositories = OwnRepositories()
        rows = {
            "dataset": self.swe.train_rows if dataset is not None else None,
            "eval_dataset": self.swe.eval_rows if eval_dataset is not None else None,
        }
        super().__init__(
            f'cd "$VF_REPOSITORY" || exit\n{command}', **rows, rubric=self.swe.swe_rubric, scores_crashes=True, **kwargs
        )

    async def make_sandbox(self, state: vf.State) -> vf.Sandbox:
        """As `SWEEnv` makes it, with the image of the row."""
        request = self.swe.request_for(read_task(state["input"]))
        await self.swe.sandbox_client.capabilities(request)
        made = await self.swe.sandbox_client.create(request)
        self.swe.register_sandbox(made.id)
        state["lent_sandbox"] = made.id
        sandbox = await self.swe.sandbox_client.sandbox(made.id)
        state["sandbox_id"] = sandbox.id
        return sandbox

    async def setup_state(self, state: vf.State) -> vf.State:
        task = read_task(state["input"])
        files = await self.swe.swe_rubric.repositories.files(task)
        state = await super().setup_state(state)
        state["checkout"] = await check_out(self.sandbox_of(state), task, files)
        return state

    def agent_variables(self, state: vf.State) -> dict[str, str]:
        return {**_VARIABLES, "VF_REPOSITORY": state["checkout"].folder}

    async def post_rollout(self, state: vf.State) -> None:
        """Takes the diff while the sandbox is there."""
        if state.get("checkout") is None or state.get("error") is not None:
            return
        try:
            diff = await take_diff(self.sandbox_of(state), state["checkout"], max_kb=self.swe.max_diff_kb)
        except OSError as error:
            raise vf.SandboxError(f"the diff could not be taken: {error}") from error
        if diff.is_doubtful and diff.why is not None:
            await self.swe.swe_rubric.check_elsewhere(read_task(state["input"]), diff.why)
        state["patch"], state["patch_error"] = diff.text, diff.why

    @vf.cleanup(priority=-900)  # after the diff was taken
    async def return_sandbox(self, state: vf.State) -> None:
        lent = state.pop("lent_sandbox", None)
        if lent is not None:
            await self.swe.delete_sandbox(lent)

    @vf.teardown
    async def close_swe(self) -> None:
        await self.swe.teardown()
        if self._local is not None:
            await self._local.close()
