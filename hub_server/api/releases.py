"""Releases over JSON: begin one, put its files, finalize it; yank, take back, delete.

POST   /projects/{owner}/{name}/releases                        {"version": "0.2.0"} → its id
PUT    /projects/{owner}/{name}/releases/{id}/files/{filename}  the bytes, with Content-Digest (RFC 9530)
POST   /projects/{owner}/{name}/releases/{id}/finalize          published, at once and as a whole
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel, Field

from hub_server.checking import in_checking_thread
from hub_server.errors import BadRequest
from hub_server.http import base_url, hub_of, principal
from hub_server.multipart import received_file
from hub_server.principal import Principal
from hub_server.services import release_changes, release_staged
from hub_server.services.release_changes import ReleaseState
from hub_server.services.release_staged import OpenRelease

router = APIRouter(tags=["releases"])

Who = Annotated[Principal, Depends(principal)]
_DIGEST = re.compile(r"(?:^|,)\s*sha-256=:([A-Za-z0-9+/=]{1,64}):", re.I)


class NewRelease(BaseModel):
    version: str = Field(max_length=64, description="PEP 440, without a local part")


class YankReason(BaseModel):
    reason: str = Field("", max_length=release_changes.MAX_REASON, description="shown by installers")


class PublishedRelease(BaseModel):
    owner: str
    name: str
    version: str
    visibility: str
    content_hash: str | None
    files: dict[str, str] = Field(description="file name → SHA-256")
    url: str = Field(description="its page")


@router.post("/projects/{owner}/{name}/releases", status_code=201)
def begin_release(request: Request, who: Who, owner: str, name: str, new: NewRelease) -> OpenRelease:
    """Begins a release. It is in no page and no index until it is final, and forgotten after a day."""
    return release_staged.begin(hub_of(request), who, owner, name, new.version)


@router.get("/projects/{owner}/{name}/releases/{release_id}")
def open_release(request: Request, who: Who, owner: str, name: str, release_id: str) -> OpenRelease:
    """What was put so far; for whoever began it."""
    return release_staged.look(hub_of(request), who, owner, name, release_id)


@router.put("/projects/{owner}/{name}/releases/{release_id}/files/{filename}")
async def put_file(request: Request, who: Who, owner: str, name: str, release_id: str, filename: str) -> OpenRelease:
    """The body is the file; `Content-Digest: sha-256=:BASE64:` is needed. May be repeated."""
    hub = hub_of(request)
    await in_checking_thread(release_staged.look, hub, who, owner, name, release_id)  # before a byte is read
    digest = _wanted_digest(request)
    async with received_file(request, hub.settings, filename) as arrived:
        if not hmac.compare_digest(digest, bytes.fromhex(arrived.sha256)):
            raise BadRequest(
                f"the body has the SHA-256 {arrived.sha256}, and Content-Digest says {digest.hex()}: send it again",
                code="digest_mismatch",
            )
        return await in_checking_thread(release_staged.put, hub, who, owner, name, release_id, arrived)


@router.post("/projects/{owner}/{name}/releases/{release_id}/finalize")
async def finalize_release(request: Request, who: Who, owner: str, name: str, release_id: str) -> PublishedRelease:
    """Publishes the release: all of it, or nothing. Repeating it gives the same answer."""
    done = await in_checking_thread(release_staged.finalize, hub_of(request), who, owner, name, release_id)
    return PublishedRelease(**asdict(done), url=f"{base_url(request)}/{done.owner}/{done.name}")


@router.delete("/projects/{owner}/{name}/releases/{release_id}", status_code=204)
def abandon_release(request: Request, who: Who, owner: str, name: str, release_id: str) -> Response:
    """Forgets a release that is not final yet."""
    release_staged.abandon(hub_of(request), who, owner, name, release_id)
    return Response(status_code=204)


@router.put("/projects/{owner}/{name}/versions/{version}/yank")
def yank_release(request: Request, who: Who, owner: str, name: str, version: str, why: YankReason) -> ReleaseState:
    """Installers pass the version over, unless somebody asks for exactly this one."""
    return release_changes.yank(hub_of(request), who, owner, name, version, why.reason)


@router.delete("/projects/{owner}/{name}/versions/{version}/yank")
def unyank_release(request: Request, who: Who, owner: str, name: str, version: str) -> ReleaseState:
    """Offers the version again."""
    return release_changes.unyank(hub_of(request), who, owner, name, version)


@router.delete("/projects/{owner}/{name}/versions/{version}", status_code=204)
def delete_release(request: Request, who: Who, owner: str, name: str, version: str) -> Response:
    """Takes the version away for ever: it cannot be published again, nor can its file names."""
    release_changes.delete_release(hub_of(request), who, owner, name, version)
    return Response(status_code=204)


def _wanted_digest(request: Request) -> bytes:
    found = _DIGEST.search(request.headers.get("content-digest", ""))
    try:
        digest = base64.b64decode(found[1], validate=True) if found else b""
    except binascii.Error:
        digest = b""
    if len(digest) != 32:
        raise BadRequest("send the header Content-Digest: sha-256=:BASE64: of the body", code="digest_missing")
    return digest
