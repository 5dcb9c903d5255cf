"""`ArchiveRefused`: why a wheel, an sdist or an upload form is not taken."""

from __future__ import annotations

from verifiers.errors import ConfigError


class ArchiveRefused(ConfigError):
    """A file that is not what we publish.

    `code` is a stable word for programs (docs/archives.md lists them all), `detail` the sentence for people: what was
    found, and what to do.

    >>> error = ArchiveRefused("bomb", "the members unpack to 3 GB")
    >>> error.code, str(error)
    ('bomb', 'the members unpack to 3 GB')
    """

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail

    def __reduce__(self) -> tuple[type[ArchiveRefused], tuple[str, str]]:
        return type(self), (self.code, self.detail)


def shown(text: object, limit: int = 120) -> str:
    """Text out of an archive as part of a message: printable ASCII, cut to about `limit` characters."""
    plain = ascii(text)
    return plain if len(plain) <= limit else plain[: limit - 2] + "…" + plain[-1]
