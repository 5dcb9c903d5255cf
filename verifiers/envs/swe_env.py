"""`SWEEnv`: the model mends a repository by commands and edits, and hidden tests tell whether it did."""

from __future__ import annotations

import asyncio
import posixpath
import shlex
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Literal

import msgspec

from verifiers.compat.classic_types import SandboxState
from verifiers.dataset import Rows
from verifiers.decorators import stop
from verifiers.envs.file_edits import EditError, edited, viewed
from verifiers.envs.sandbox_env import SandboxEnv
from verifiers.errors import SandboxError
from verifiers.rubrics.swe_repository import check_out, take_diff
from verifiers.rubrics.swe_rubric import SWERubric
from verifiers.rubrics.swe_task import TASK_KEY, SWETask, read_task
from verifiers.sandbox.sandbox import Sandbox, SandboxBackend
from verifiers.types import Message, State

PROMPT = """The working folder of your commands holds a repository that has this problem:

<problem>
{problem}
</problem>

Change the repository so that the problem is solved. Look at the code first, reproduce the problem, and check your
change. Tests that you do not see will be run on the result; changes of tests and of their configuration count for
nothing. When you are done, call `submit`."""

_MAX_FILE_BYTES = 4 << 20
Edit = Literal["view", "create", "str_replace", "insert"]


class SWEEnv(SandboxEnv):
    """Rows are those of SWE-bench, SWE-smith and R2E-Gym, or have the fields of `SWETask`; `docs/swe.md` has the table.

        env = vf.SWEEnv(dataset=[{
            "instance_id": "adder-1",
            "repository": "adder.bundle",
            "problem_statement": "add(2, 2) is 5",
            "test_files": {"tests/test_hidden.py": text},
            "FAIL_TO_PASS": ["tests/test_hidden.py::test_two"],
        }])

    The tools are `bash`, `edit` and `submit`. The repository has one commit and no history. When the model submits,
    answers without a call, or has used its turns, the diff is taken, the sandbox ends, and `SWERubric` grades the diff
    in a fresh one: the metric `solved`, of weight 1.0. `rubric` is what is scored besides.
    """

    def __init__(
        self,
        dataset: Any = None,
        eval_dataset: Any = None,
        max_turns: int = 200,
        *,
        prompt: str = PROMPT,
        timeout_per_command_seconds: float = 120,
        timeout_minutes: float = 180,
        memory_gb: float = 4,
        max_diff_kb: int = 4096,
        max_gradings: int | None = None,
        **kwargs: Any,
    ) -> None:
        self.prompt = prompt
        self.max_diff_kb = max_diff_kb
        super().__init__(
            dataset=self._as_rows(dataset),
            eval_dataset=self._as_rows(eval_dataset),
            max_turns=max_turns,
            timeout_per_command_seconds=timeout_per_command_seconds,
            timeout_minutes=timeout_minutes,
            memory_gb=memory_gb,
            **kwargs,
        )
        self.swe_rubric = SWERubric(self.fresh_sandbox, max_gradings=max_gradings)
        self.add_rubric(self.swe_rubric)
        self.add_tool(self.edit, args_to_skip=["state"])
        self.add_tool(self.submit, args_to_skip=["state"])

    def _backend_options(self, backend: SandboxBackend | str) -> dict[str, Any]:
        """A local sandbox shows what is installed here: the tests need their runner, and what they import."""
        return {"packages": True} if backend in ("auto", "local") else {}

    # ---- rows ----

    def _as_rows(self, source: Any) -> Any:
        """A builder, since a thousand tasks are not read to make an environment."""
        if source is None:
            return None
        return lambda: [self.row_of(row) for row in Rows(source() if callable(source) else source)]

    def row_of(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The row with its task in `info["swe"]`, as JSON: a table of tasks has no column for each test's name."""
        task = read_task(row)
        info = row.get("info")
        kept = {name: row[name] for name in ("question", "task", "example_id") if row.get(name) is not None}
        if isinstance(row.get("prompt"), list):  # as text it is R2E-Gym's, which told a model to write the problem
            kept["prompt"] = row["prompt"]
        if not {"prompt", "question"} & kept.keys():
            before, _, after = self.prompt.partition("{problem}")
            kept["question"] = f"{before}{task.problem}{after}"
        own = dict(info) if isinstance(info, Mapping) else {}
        made = msgspec.json.encode(task).decode()
        return {**kept, "info": {**own, "instance_id": task.instance_id, TASK_KEY: made}}

    # ---- sandboxes ----

    def request_for(self, task: SWETask) -> Any:
        """The sandbox that a task is worked on in, and one like it for its tests."""
        image = task.image or self.sandbox_request.docker_image
        # a machine's own settings are no part of the task, and at the local level 1 git stumbles over them
        own = {} if task.image else {"GIT_CONFIG_NOSYSTEM": "1"}
        env = {**own, **(self.sandbox_request.environment_vars or {}), **task.env}
        return self.sandbox_request.model_copy(update={"docker_image": image, "environment_vars": env})

    def get_sandbox_request(self, state: State) -> Any:
        return self.request_for(read_task(state["input"]))

    @asynccontextmanager
    async def fresh_sandbox(self, task: SWETask) -> AsyncIterator[Sandbox]:
        """One that nobody has used, as long as the block lasts."""
        request = self.request_for(task)
        await self.sandbox_client.capabilities(request)
        made = await self.sandbox_client.create(request)
        self.register_sandbox(made.id)
        try:
            yield await self.sandbox_client.sandbox(made.id)
        finally:
            await asyncio.shield(self.delete_sandbox(made.id))

    async def setup_state(self, state: State, **kwargs: Any) -> State:
        task = read_task(state["input"])
        files = await self.swe_rubric.repositories.files(task)
        state = await super().setup_state(state, **kwargs)
        await self._wait_for_sandbox_ready(state["sandbox_state"], state["sandbox_id"])
        sandbox = await self._sandbox(state)
        checkout = await check_out(sandbox, task, files)
        state["checkout"], state["working_dir"], state["submitted"] = checkout, checkout.folder, False
        return state

    async def _sandbox(self, state: State) -> Sandbox:
        return await self.sandbox_client.sandbox(state["sandbox_id"])

    # ---- tools ----

    def update_tool_args(
        self, tool_name: str, tool_args: dict[str, Any], messages: list[Message], state: State, **kwargs: Any
    ) -> dict[str, Any]:
        if tool_name in ("edit", "submit"):
            return {**tool_args, "state": state}
        return super().update_tool_args(tool_name, tool_args, messages, state, **kwargs)

    def _own_tools(self) -> tuple[Any, ...]:
        return (self.bash, self.edit)

    async def bash(
        self,
        command: str,
        sandbox_id: str,
        sandbox_state: SandboxState | None = None,
        working_dir: str | None = None,
    ) -> str:
        """Runs a shell command in the folder of the repository and returns what it prints.

        Args:
            command: The command, as for bash. Files stay from call to call; variables and the folder do not.
        """
        return await super().bash(command, sandbox_id, sandbox_state, working_dir)

    async def edit(
        self,
        command: Edit,
        path: str,
        state: Any,
        file_text: str | None = None,
        old_str: str | None = None,
        new_str: str | None = None,
        insert_line: int | None = None,
        view_range: list[int] | None = None,
    ) -> str:
        """Shows or changes a text file.

        Args:
            command: `view` a file or folder, `create` a file, `str_replace` a text that occurs once, or `insert` lines.
            path: Of the file, from the folder of the repository.
            file_text: For `create`: the whole text.
            old_str: For `str_replace`: what to replace, exactly as it stands there.
            new_str: For `str_replace` and `insert`: the new text.
            insert_line: For `insert`: the line after which to insert; 0 is the beginning.
            view_range: For `view`: the first and the last line, from 1; -1 is the last of the file.
        """
        sandbox = await self._sandbox(state)
        where = posixpath.normpath(posixpath.join(state["working_dir"], path))
        if command == "create":
            if file_text is None:
                raise EditError("create needs file_text")
            await self._write(sandbox, where, file_text)
            return f"{path} is written: {file_text.count(chr(10)) + 1} lines."
        try:
            data = await sandbox.read_file(where, max_bytes=_MAX_FILE_BYTES + 1)
        except IsADirectoryError:
            if command == "view":
                listed = await sandbox.exec(f"find {shlex.quote(where)} -maxdepth 2 -not -path '*/.*' | sort")
                return listed.text
            raise EditError(f"{path} is a folder") from None
        except FileNotFoundError:
            raise EditError(f"there is no {path}; to make it, use the command create") from None
        if len(data) > _MAX_FILE_BYTES or b"\0" in data:
            raise EditError(f"{path} is no text, or too large; use bash")
        try:
            text = data.decode()
        except UnicodeDecodeError:
            raise EditError(f"{path} is not UTF-8; use bash") from None
        if command == "view":
            return viewed(text, view_range)
        changed, shown = edited(text, command, old_str, new_str, insert_line)
        await self._write(sandbox, where, changed)
        return f"{path} is changed:\n{shown}"

    async def _write(self, sandbox: Sandbox, path: str, text: str) -> None:
        """A program stays one."""
        is_program = (await sandbox.exec(["test", "-x", path])).ok and not (await sandbox.exec(["test", "-d", path])).ok
        try:
            await sandbox.write_file(path, text, mode=0o755 if is_program else 0o644)
        except OSError as error:
            raise EditError(str(error)) from None

    async def submit(self, state: Any) -> str:
        """Says that the problem is solved. There is nothing to be done after it."""
        state["submitted"] = True
        return "submitted"

    @stop
    async def has_submitted(self, state: State, **kwargs: Any) -> bool:
        return bool(state.get("submitted"))

    # ---- end ----

    async def post_rollout(self, state: State) -> None:
        """Takes the diff, `state["patch"]`; the sandbox and every process in it end before it is graded."""
        if state.get("checkout") is None or state.get("error") is not None:
            return
        try:
            diff = await take_diff(await self._sandbox(state), state["checkout"], max_kb=self.max_diff_kb)
        except OSError as error:
            raise SandboxError(f"the diff could not be taken: {error}") from error
        if diff.is_doubtful and diff.why is not None:
            await self.swe_rubric.check_elsewhere(read_task(state["input"]), diff.why)
        state["patch"], state["patch_error"] = diff.text, diff.why

    async def grade(self, row: Mapping[str, Any], patch: str | None = None) -> float:
        """What a diff is worth for a row, by default its own reference; that must be 1.0, and "" must be 0.0."""
        task = read_task(row)
        return await self.swe_rubric.grade(task, task.patch if patch is None else patch)
