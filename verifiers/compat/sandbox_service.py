"""Names of the package `prime_sandboxes`, for environments that import it where it is not installed.

The classic releases brought it along, so environment packages do not ask for it. Errors are classes of their own, so
that an `except` clause does not take one for another; those that ours never meet are never raised.
"""

from __future__ import annotations

from typing import Any

from verifiers.envs.sandbox_client import SandboxClient
from verifiers.errors import SandboxError


class AsyncSandboxClient(SandboxClient):
    """Made without settings; it knows every sandbox of this process, and makes new ones on the `auto` backend."""

    def __init__(self, *_of_the_service: Any, **__: Any) -> None:
        super().__init__()

    async def __aenter__(self) -> AsyncSandboxClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class APIError(SandboxError):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, *kwargs.values())


class APITimeoutError(APIError):
    pass


class UnauthorizedError(APIError):
    pass


class PaymentRequiredError(APIError):
    pass


class SandboxOOMError(APIError):
    pass


class SandboxTimeoutError(APIError):
    pass


class SandboxImagePullError(APIError):
    pass


class SandboxNotRunningError(APIError):
    pass


class UploadTimeoutError(APIError):
    pass


class DownloadTimeoutError(APIError):
    pass


SandboxFileNotFoundError = FileNotFoundError  # which reading a file raises here
