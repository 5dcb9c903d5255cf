"""The upload form of the package index, as twine and uv fill it in, and how tests send it."""

from __future__ import annotations

import hashlib
from email.parser import BytesParser
from typing import Any

import httpx2 as httpx
from hub_packages import Package
from starlette.testclient import TestClient

Fields = list[tuple[str, str]]


def fields_of(filename: str, data: bytes, metadata: bytes, **changes: str | None) -> Fields:
    """What a tool sends with a file of this metadata. `changes` replaces a field, or drops it when `None`."""
    head = BytesParser().parsebytes(metadata)
    is_wheel = filename.endswith(".whl")
    fields = {
        ":action": "file_upload",
        "protocol_version": "1",
        "metadata_version": str(head["Metadata-Version"]),
        "name": str(head["Name"]),
        "version": str(head["Version"]),
        "filetype": "bdist_wheel" if is_wheel else "sdist",
        "pyversion": "py3" if is_wheel else "source",
        "summary": str(head["Summary"] or ""),
        "requires_python": str(head["Requires-Python"] or ""),
        "description_content_type": str(head["Description-Content-Type"] or ""),
        "description": str(head.get_payload()),
        "md5_digest": hashlib.md5(data).hexdigest(),
        "sha256_digest": hashlib.sha256(data).hexdigest(),
        "blake2_256_digest": hashlib.blake2b(data, digest_size=32).hexdigest(),
    }
    renamed: dict[str, str | None] = {":action" if k == "action" else k: v for k, v in changes.items()}
    kept = [(key, value) for key, value in (fields | renamed).items() if value is not None]
    return [*kept, *(("requires_dist", text) for text in head.get_all("Requires-Dist") or [])]


def multipart(fields: Fields, filename: str | None, data: bytes, boundary: str = "b0undary") -> tuple[bytes, str]:
    """The body and its content type; without a file name the form has no file."""
    body = bytearray()
    for key, value in fields:
        body += f'--{boundary}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n'.encode()
        body += value.encode("utf-8", "surrogateescape") + b"\r\n"
    if filename is not None:
        body += f'--{boundary}\r\nContent-Disposition: form-data; name="content"; filename="{filename}"\r\n'.encode()
        body += b"Content-Type: application/octet-stream\r\n\r\n" + data + b"\r\n"
    body += f"--{boundary}--\r\n".encode()
    return bytes(body), f"multipart/form-data; boundary={boundary}"


def upload(
    client: TestClient | httpx.Client,
    headers: dict[str, str],
    filename: str,
    data: bytes,
    metadata: bytes,
    path: str = "/legacy/",
    **changes: str | None,
) -> Any:
    body, kind = multipart(fields_of(filename, data, metadata, **changes), filename, data)
    return client.post(path, content=body, headers={**headers, "Content-Type": kind})


def upload_wheel(client: TestClient, headers: dict[str, str], package: Package, path: str = "/legacy/") -> Any:
    return upload(client, headers, package.wheel_name, package.wheel(), package.metadata, path)


def upload_sdist(client: TestClient, headers: dict[str, str], package: Package, path: str = "/legacy/") -> Any:
    return upload(client, headers, package.sdist_name, package.sdist(), package.metadata, path)
