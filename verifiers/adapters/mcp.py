"""`MCPEnv`: the tools of Model Context Protocol servers, offered to the model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from verifiers.adapters.extras import require
from verifiers.adapters.mcp_server import MCPServer, ServerLoop, ToolRefusal
from verifiers.decorators import teardown
from verifiers.envs.environment import run_sync
from verifiers.envs.tool_env import ToolEnv
from verifiers.errors import ConfigError, Error, InfraError
from verifiers.types import Message, RolloutInput, SamplingArgs, State, Tool

__all__ = ["MCPEnv"]


def _as_error(error: Exception) -> str:
    return f"Error: {error}"


class MCPEnv(ToolEnv):
    """The model calls the tools of MCP servers until it answers without a call.

        env = vf.MCPEnv(
            mcp_servers=[
                {"name": "files", "command": "uvx", "args": ["some-file-server"], "env": {"ROOT": "data"}},
                {"name": "search", "url": "https://search.example/mcp", "headers": {"Authorization": "Bearer …"}},
            ],
            dataset=rows, rubric=rubric,
        )

    A server with `command` is started and spoken to over its standard input and output, one with `url` over streamable
    HTTP. They are started, and asked for their tools, before the first rollout (or by `connect()`), are shared by all
    rollouts of this environment in whatever event loop, and are stopped by `teardown()`. Functions given as `tools`
    are offered as well. When two servers offer a tool of one name, the later one's is called `<server>_<tool>`.

    A tool that fails, and a server that stops in the middle of a call, are told to the model; the server is started
    again for the next call. One that cannot be started ends the rollout with an InfraError: that is not the model's
    mistake.
    """

    def __init__(
        self,
        mcp_servers: Sequence[Mapping[str, Any] | Any] = (),
        tools: Sequence[Callable[..., Any]] | None = None,
        max_turns: int = 10,
        error_formatter: Callable[[Exception], str] = _as_error,
        tool_timeout_s: float | None = 300.0,
        start_timeout_s: float = 60.0,
        **kwargs: Any,
    ) -> None:
        require("mcp", "mcp", "MCPEnv")
        self.mcp_servers = list(mcp_servers)
        self._loop = ServerLoop()
        self._servers = [MCPServer.described(server, self._loop, start_timeout_s) for server in mcp_servers]
        names = [server.name for server in self._servers]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ConfigError(f"two MCP servers are called '{twice[0]}'; give each a name of its own")
        super().__init__(
            tools=tools, max_turns=max_turns, error_formatter=error_formatter, tool_timeout_s=tool_timeout_s, **kwargs
        )
        self._is_connected = False

    def connect(self) -> None:
        """Starts the servers and learns their tools, from ordinary code. Raises InfraError when one does not start."""
        run_sync(self._connected())

    async def init_state(
        self, input: RolloutInput, client: Any, model: str, sampling_args: SamplingArgs | None = None
    ) -> State:
        failure = await self._try_to_connect()
        state = await super().init_state(input, client, model, sampling_args)
        state["error"] = failure
        return state

    async def _try_to_connect(self) -> Error | None:
        """Without its tools a rollout means nothing: it ends before the model is asked."""
        if self._is_connected:
            return None
        try:
            await self._connected()
        except InfraError as error:
            return error
        return None

    async def _connected(self) -> None:
        await self._loop.run(self._learn_tools)

    async def _learn_tools(self) -> None:
        """In the servers' loop, where it runs once however many rollouts ask for it at the same time."""
        async with self._loop.lock:
            if self._is_connected:
                return
            found = await asyncio.gather(*(server.tools() for server in self._servers), return_exceptions=True)
            for failure in found:
                if isinstance(failure, BaseException):
                    raise failure
            for server, definitions in zip(self._servers, found, strict=True):
                for definition in definitions:  # type: ignore[union-attr]
                    self._offer(server, definition)
            self._is_connected = True

    def _offer(self, server: MCPServer, definition: Tool) -> None:
        name = definition["name"]
        shown = f"{server.name}_{name}" if name in self.tool_map else name
        self._register(_ServerTool(server, name, shown), Tool(**{**definition, "name": shown}))

    def _failed(self, error: Exception, call_id: str, kind: type[Error]) -> Message:
        if isinstance(error, InfraError):
            raise error
        return super()._failed(error, call_id, kind)

    @teardown
    async def stop_servers(self) -> None:
        """Stops every server and the thread that speaks to them."""
        await self._loop.close(self._servers)


class _ServerTool:
    """One tool of a server, as a function with keywords."""

    def __init__(self, server: MCPServer, name: str, shown: str) -> None:
        self.server, self.name = server, name
        self.__name__ = shown

    async def __call__(self, **arguments: Any) -> Any:
        return content_of(await self.server.call(self.name, arguments))


def content_of(result: Mapping[str, Any]) -> Any:
    """A tool's result as the content of its message: text, or parts when there are images in it.

    Raises ToolRefusal with the text when the server says that the call failed.
    """
    parts = [_part(block) for block in result.get("content") or ()]
    if not parts and result.get("structuredContent") is not None:
        parts = [_text(json.dumps(result["structuredContent"], ensure_ascii=False))]
    text = "\n".join(part["text"] for part in parts if part["type"] == "text")
    if result.get("isError"):
        raise ToolRefusal(text or "the tool failed and did not say why")
    return text if all(part["type"] == "text" for part in parts) else parts


def _part(block: Mapping[str, Any]) -> dict[str, Any]:
    """One block of a result, in the shape of a chat message's part."""
    kind = block.get("type")
    if kind == "text":
        return _text(block["text"])
    if kind == "image":
        return _image(block["mimeType"], block["data"])
    if kind == "resource":
        resource = block["resource"]
        media = resource.get("mimeType") or ""
        if "text" in resource:
            return _text(resource["text"])
        if media.startswith("image/"):
            return _image(media, resource["blob"])
        return _text(f"[{media or 'binary data'}: {resource.get('uri')}]")
    if kind == "resource_link":
        return _text(f"[{block.get('name') or 'resource'}: {block.get('uri')}]")
    return _text(f"[{kind}]")  # sound, which chat models take in no common shape


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _image(media: str, data: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"data:{media};base64,{data}"}}
