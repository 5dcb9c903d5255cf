"""`SandboxMixin`: sandboxes for an environment that decides itself when to make them and what to run there."""

from __future__ import annotations

import asyncio
import io
import logging
import posixpath
import random
import tarfile
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from verifiers.calls import maybe_await
from verifiers.decorators import teardown
from verifiers.envs.sandbox_client import SandboxClient, as_sandbox_error, is_command_timeout
from verifiers.errors import InfraError, SandboxError, SetupError, one_line
from verifiers.rubrics import Rubric
from verifiers.sandbox.sandbox import SandboxBackend
from verifiers.types import State

logger = logging.getLogger("verifiers")


class SandboxMixin:
    """Put it before the class of the environment, and call `init_sandbox_client` in the constructor.

        class Mine(vf.SandboxMixin, vf.MultiTurnEnv):
            def __init__(self, **kwargs):
                super().__init__(**kwargs)
                self.init_sandbox_client()

            async def setup_state(self, state):
                await self.create_sandbox(state, CreateSandboxRequest(name="mine"))

            @vf.cleanup
            async def destroy_sandbox(self, state):
                await self.delete_sandbox(state["sandbox_id"])

    `with_retry(func)` is `func` that is called again after an `InfraError`, `max_retries` times in all.
    """

    active_sandboxes: set[str]
    sandbox_client: Any  # a SandboxClient, or one with its methods that an author puts in its place
    with_retry: Callable[[Callable[..., Awaitable[Any]]], Callable[..., Awaitable[Any]]]

    def init_sandbox_client(
        self,
        max_retries: int = 5,
        base_delay: float = 0.5,
        backoff_factor: float = 2.0,
        max_backoff_seconds: float = 30.0,
        jitter: float = 0.001,
        backend: SandboxBackend | str = "auto",
        backend_options: Mapping[str, Any] | None = None,
        **_of_the_service: Any,
    ) -> None:
        """Settings of the hosted service, such as its numbers of connections, are taken without effect."""

        def with_retry(func: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
            async def tried(*args: Any, **kwargs: Any) -> Any:
                for number in range(max_retries - 1):
                    try:
                        return await func(*args, **kwargs)
                    except InfraError as error:
                        if isinstance(error, SetupError):  # the same again
                            raise
                    pause_s = base_delay * backoff_factor**number + random.uniform(0, jitter)
                    await asyncio.sleep(min(max_backoff_seconds, pause_s))
                return await func(*args, **kwargs)

            return tried

        self.with_retry = with_retry
        self.active_sandboxes = set()
        self.sandbox_client = SandboxClient(backend, backend_options=backend_options, retry=with_retry)

    def register_sandbox(self, sandbox_id: str) -> None:
        self.active_sandboxes.add(sandbox_id)

    def deregister_sandbox(self, sandbox_id: str) -> None:
        self.active_sandboxes.discard(sandbox_id)

    async def create_sandbox(self, state: State, request: Any) -> str:
        """Makes one, waits for it, notes it in `state["sandbox_id"]` and calls `post_sandbox_setup`."""
        if isinstance(self.sandbox_client, SandboxClient):
            await self.sandbox_client.capabilities(request)
        made = await self.sandbox_client.create(request)
        self.register_sandbox(made.id)
        state["sandbox_id"] = made.id
        try:
            await self.sandbox_client.wait_for_creation(made.id)
        except Exception as error:
            raise as_sandbox_error(error) from error
        await self.post_sandbox_setup(state)
        return made.id

    async def post_sandbox_setup(self, state: State) -> None:
        """For authors: what is to be done in a sandbox that has just been made."""

    async def delete_sandbox(self, sandbox_id: str) -> None:
        """That it cannot be deleted is told to the log: what the rollout did is none the worse for it."""
        try:
            await self.sandbox_client.delete(sandbox_id)
        except Exception as error:
            logger.warning("the sandbox %s could not be deleted: %s", sandbox_id, one_line(error))
            return
        self.deregister_sandbox(sandbox_id)

    async def bulk_delete_sandboxes(self, sandbox_ids: list[str]) -> None:
        try:
            await self.sandbox_client.bulk_delete(list(sandbox_ids))
        except Exception as error:
            logger.warning("%d sandboxes could not be deleted: %s", len(sandbox_ids), one_line(error))
            return
        self.active_sandboxes.difference_update(sandbox_ids)

    async def run_background_job(
        self, state: Any, command: str, timeout: int, working_dir: str | None = None, poll_interval: int = 3
    ) -> Any:
        """Runs a long command and waits for its end: its `exit_code`, `stdout` and `stderr`."""
        try:
            return await self.sandbox_client.run_background_job(
                state["sandbox_id"], command, timeout=timeout, working_dir=working_dir, poll_interval=poll_interval
            )
        except Exception as error:
            if is_command_timeout(error):
                state["sandbox_timeout"] = True
                raise
            raise as_sandbox_error(error) from error

    async def upload_file(self, sandbox_id: str, remote_path: str, local_path: str) -> None:
        await self.sandbox_client.upload_file(sandbox_id, remote_path, local_path)

    async def upload_content(self, sandbox_id: str, content: str, remote_path: str) -> None:
        name = posixpath.basename(remote_path)
        await self.sandbox_client.upload_bytes(sandbox_id, remote_path, content.encode(), name)

    async def read_file(self, sandbox_id: str, remote_path: str, timeout: int = 10) -> str | None:
        """The text of a file; `None` when there is no such file."""
        try:
            return (await self.sandbox_client.read_file(sandbox_id, remote_path, timeout=timeout)).content
        except OSError:
            return None

    async def upload_bundle(self, sandbox_id: str, file_map: Mapping[str, str], dest_dir: str) -> None:
        """Texts by their paths under `dest_dir`, all at once."""
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            for name, text in file_map.items():
                data = text.encode()
                member = tarfile.TarInfo(name)
                member.size, member.mode = len(data), 0o755
                archive.addfile(member, io.BytesIO(data))
        await (await self.sandbox_client.sandbox(sandbox_id)).put_archive(buffer.getvalue(), dest_dir)

    # ---- end ----

    async def teardown_sandboxes(self) -> Any:
        """Deletes what no rollout has deleted. Overrides may be synchronous."""
        if getattr(self, "active_sandboxes", None):
            await self.bulk_delete_sandboxes(list(self.active_sandboxes))

    async def teardown_sandbox_client(self) -> Any:
        client = getattr(self, "sandbox_client", None)
        close = getattr(client, "aclose", None) or getattr(client, "teardown", None)
        if close is not None:
            await maybe_await(close)

    @teardown(priority=-10)
    async def teardown_mixin_sandboxes(self) -> None:
        await maybe_await(self.teardown_sandboxes)

    @teardown(priority=-20)
    async def teardown_mixin_sandbox_client(self) -> None:
        await maybe_await(self.teardown_sandbox_client)


class SandboxMonitorRubric(Rubric):
    """The metrics `sandbox_oom` and `sandbox_timeout`: 1 where the state says so."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_metric(self.sandbox_oom)
        self.add_metric(self.sandbox_timeout)

    async def sandbox_oom(self, state: State) -> float:
        return float(bool(state.get("sandbox_oom")))

    async def sandbox_timeout(self, state: State) -> float:
        return float(bool(state.get("sandbox_timeout")))


def is_retryable_sandbox_api_error(error: BaseException) -> bool:
    """A failure of what runs sandboxes, which may pass."""
    return isinstance(error, SandboxError) and not isinstance(error, SetupError)


def is_retryable_sandbox_read_error(error: BaseException) -> bool:
    """The same of reading, which may be done again after any time limit too."""
    return is_retryable_sandbox_api_error(error) or isinstance(error, TimeoutError) or is_command_timeout(error)
