"""`ObjectStorage`: the hub's files in a bucket: S3 and what speaks like it, Google Cloud Storage, Azure.

Credentials come from the usual places of the store (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL`, a role of the machine …),
never from the hub's settings. A file is put only if its key is absent (`If-None-Match: *`); a store that does not know
conditional puts refuses them, and so is no place for a hub.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, cast

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import AzureStore, GCSStore, S3Store, from_url

from hub_server.errors import BadRequest, HubError, StorageFull, Unavailable
from hub_server.storage import PIECE_BYTES, StoredFile, parts_of

ATTEMPTS = 3
ANSWER_WITHIN_S = 30
SCHEMES = ("s3", "gs", "az")
_FULL = ("insufficientstorage", "storagefull", "quotaexceeded", "statuscode:507")


class ObjectStorage:
    """A bucket, or the part of one under a prefix: `s3://bucket/prefix`."""

    def __init__(self, url: str) -> None:
        if url.partition("://")[0] not in SCHEMES:
            raise BadRequest(
                f"no storage of the hub: {url!r}. Write s3://bucket/prefix (or gs://, az://), or memory://"
            )
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
        client: Any = {
            "timeout": f"{ANSWER_WITHIN_S}s",
            "connect_timeout": "5s",
            "allow_http": endpoint.startswith("http://"),
        }
        retry: Any = {"max_retries": ATTEMPTS - 1, "retry_timeout": timedelta(seconds=ANSWER_WITHIN_S)}
        options: dict[str, Any] = {"config": {"endpoint": endpoint}} if endpoint and url.startswith("s3:") else {}
        self._store = cast(
            "S3Store | GCSStore | AzureStore", from_url(url, client_options=client, retry_config=retry, **options)
        )

    def put(self, key: str, source: Path | bytes) -> None:
        parts_of(key)
        if self.size(key) is not None:  # saves sending it
            return
        try:
            if isinstance(source, bytes):
                self._put(key, source)
            elif source.stat().st_size == 0:
                self._put(key, b"")  # nothing to map
            else:
                # Mapped, because a conditional put takes one buffer and uploads are not read into memory.
                with source.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as pages:
                    self._put(key, pages)
        except AlreadyExistsError:
            pass
        except BaseError as error:
            raise _named(error) from error

    def _put(self, key: str, data: bytes | mmap.mmap) -> None:
        obstore.put(self._store, key, data, mode="create")

    def read(self, key: str, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        parts_of(key)
        size = self.size(key)
        if size is None:
            raise FileNotFoundError(key)
        end = size if length is None else min(size, start + length)
        if start >= end:
            return iter(())
        try:
            found = obstore.get(self._store, key, options={"range": (start, end)})
        except BaseError as error:
            raise _named(error) from error
        return _pieces(found)

    def size(self, key: str) -> int | None:
        parts_of(key)
        try:
            return obstore.head(self._store, key)["size"]
        except FileNotFoundError:
            return None
        except BaseError as error:
            raise _named(error) from error

    def delete(self, key: str) -> None:
        parts_of(key)
        try:
            obstore.delete(self._store, key)
        except FileNotFoundError:
            pass
        except BaseError as error:
            raise _named(error) from error

    def list(self, prefix: str) -> Iterator[StoredFile]:
        try:
            # The store compares whole parts of a path: the last one, which may be a beginning, is compared here.
            for batch in obstore.list(self._store, prefix=prefix.rpartition("/")[0] or None):
                for found in batch:
                    if found["path"].startswith(prefix):
                        yield StoredFile(found["path"], found["size"], found["last_modified"])
        except BaseError as error:
            raise _named(error) from error

    def local_path(self, key: str) -> Path | None:
        return None

    def discard_parts(self, before: datetime) -> int:
        return 0  # a put is one request: the store keeps all of it or nothing


def _pieces(found: obstore.GetResult) -> Iterator[bytes]:
    try:
        for piece in found.stream(min_chunk_size=PIECE_BYTES):
            yield bytes(piece)
    except BaseError as error:
        raise _named(error) from error


def _named(error: BaseError) -> HubError:
    said = str(error)
    if any(word in said.lower().replace(" ", "") for word in _FULL):
        return StorageFull("the hub's object store takes no more")
    kind = type(error).__name__
    if kind in ("PermissionDeniedError", "UnauthenticatedError"):
        return Unavailable("the object store refuses this hub: its operator must look", retry_after_s=60)
    return Unavailable("the hub's object store does not answer just now: try again", retry_after_s=5)
