"""What the hub refuses, and how: each error is one HTTP status and one code that programs may rely on.

    HubError
    ├── BadRequest      400  what was sent is wrong in itself
    ├── NotSignedIn     401  no token, or one that is wrong, expired or revoked
    ├── Forbidden       403  signed in, without the right
    ├── NotFound        404  not there, or not to be seen by whoever asks: the two look the same
    ├── NotAllowed      405  the address knows other methods
    ├── TooSlow         408  the body did not arrive in time
    ├── Conflict        409  it would clash with what is there
    ├── TooLarge        413
    ├── Unprocessable   422  well-formed, and contradicts what the hub knows
    ├── TooMany         429  with Retry-After
    ├── CorruptFile     500  what is stored is not what was published: never sent
    ├── Unavailable     503  the database is locked or the object store down; with Retry-After
    └── StorageFull     507

Answered in one place (`app.py`): RFC 9457 problem details for programs, one page for people.
"""

from __future__ import annotations


class HubError(Exception):
    """`code` is a word for programs, the message a sentence for people: what was asked, what was found, what to do."""

    status = 500
    code = "error"

    def __init__(self, message: str, *, code: str | None = None, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or type(self).code
        self.retry_after_s = retry_after_s


class BadRequest(HubError):
    status, code = 400, "bad_request"


class NotSignedIn(HubError):
    status, code = 401, "not_signed_in"


class Forbidden(HubError):
    status, code = 403, "forbidden"


class NotFound(HubError):
    status, code = 404, "not_found"


class NotAllowed(HubError):
    status, code = 405, "not_allowed"


class TooSlow(HubError):
    status, code = 408, "too_slow"


class Conflict(HubError):
    status, code = 409, "conflict"


class TooLarge(HubError):
    status, code = 413, "too_large"


class Unprocessable(HubError):
    status, code = 422, "unprocessable"


class TooMany(HubError):
    status, code = 429, "too_many"


class CorruptFile(HubError):
    status, code = 500, "corrupt_file"


class Unavailable(HubError):
    status, code = 503, "unavailable"


class StorageFull(HubError):
    status, code = 507, "storage_full"
