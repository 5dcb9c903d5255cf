"""How servers are given new weights: the routes and bodies of three dialects, and which of them a server speaks.

`vllm` is stock vLLM's weight transfer; `report` is that of the servers in the INTELLECT-3 report (`/update_weights
{weight_dir}`, the same path with another body); `rpc` is vLLM without weight transfer, where `/collective_rpc` reloads
from a folder.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Literal

from verifiers.rl.admin import AdminError, AdminLink, Round

DialectName = Literal["vllm", "report", "rpc"]

_log = logging.getLogger(__name__)


class VLLMDialect:
    """Stock vLLM with `--weight-transfer-config`: start, update, finish."""

    name: DialectName = "vllm"

    async def load(self, link: AdminLink, round_: Round, version: str) -> None:
        await self._start(link)

        async def post(update_info: dict[str, Any]) -> Any:
            return await link.post("/update_weights", {"update_info": update_info}, timeout_s=link.update_timeout_s)

        await round_.deliver(link, post)
        await link.post("/finish_weight_update", {"weight_version": version}, timeout_s=link.update_timeout_s)
        await forget_prefixes(link)

    async def _start(self, link: AdminLink) -> None:
        try:
            await link.post("/start_weight_update", timeout_s=link.update_timeout_s)
        except AdminError as error:
            if error.status is None or "already active" not in str(error):
                raise
            # whoever began it is gone: an update that was cut off between two of its requests
            await link.post("/finish_weight_update", timeout_s=link.update_timeout_s)
            await link.post("/start_weight_update", timeout_s=link.update_timeout_s)


class ReportDialect:
    """The servers of the report: one request, with a folder that they can read."""

    name: DialectName = "report"

    async def load(self, link: AdminLink, round_: Round, version: str) -> None:
        body = {"weight_dir": folder_of(round_, self.name)}
        await link.post("/update_weights", body, timeout_s=link.update_timeout_s)

    async def reload(self, link: AdminLink) -> None:
        """Back to the weights that the server was started with."""
        await link.post("/reload_weights", timeout_s=link.update_timeout_s)


class RPCDialect:
    """vLLM without weight transfer: its workers reload from a folder.

    A failed `reload_weights` leaves vLLM's workers without weights, and with tied embeddings on a CPU it forgets the
    output layer: the extension's `reload_whole` does neither, and is called where it is loaded.
    """

    name: DialectName = "rpc"

    async def load(self, link: AdminLink, round_: Round, version: str) -> None:
        folder = folder_of(round_, self.name)
        if link.has_extension:
            await link.call("reload_whole", folder=folder, timeout_s=link.update_timeout_s)
        else:
            await link.call("reload_weights", weights_path=folder, timeout_s=link.update_timeout_s)
        await link.set_version(version)
        await forget_prefixes(link)


Dialect = VLLMDialect | ReportDialect | RPCDialect
DIALECTS: dict[str, type[Dialect]] = {"vllm": VLLMDialect, "report": ReportDialect, "rpc": RPCDialect}


async def routes_of(link: AdminLink) -> set[str]:
    """Which admin routes there are. A GET of a route that wants a POST is answered 405, of none 404; neither does
    anything."""
    names = ("pause", "update_weights", "start_weight_update", "reload_weights", "collective_rpc")
    found = await asyncio.gather(*(link.status_of(f"/{name}") for name in names))
    return {name for name, status in zip(names, found, strict=True) if status not in (401, 403, 404)}


def dialect_for(routes: set[str]) -> DialectName | None:
    """The dialect of a server with these routes; `None`: its weights cannot be changed.

    A path of one dialect is never taken for that of another: `/update_weights` says nothing by itself.
    """
    if {"start_weight_update", "update_weights"} <= routes:
        return "vllm"
    if {"reload_weights", "update_weights"} <= routes:
        return "report"
    return "rpc" if "collective_rpc" in routes else None


def folder_of(round_: Round, dialect: str) -> str:
    if round_.folder is None:
        raise AdminError(
            f"a server of dialect '{dialect}' reads weights from a folder, and these are sent by a trainer. "
            "Give FolderWeights, or start the server with --weight-transfer-config (verifiers.rl.launch writes it)"
        )
    return round_.folder


async def forget_prefixes(link: AdminLink) -> None:
    """Drops the prefix cache as far as no request uses it. `cache_salt` is what keeps versions apart; this is for
    requests without one, so that a refusal is no failure."""
    try:
        await link.post("/reset_prefix_cache")
    except AdminError as error:
        _log.debug("the prefix cache was kept: %s", error)
