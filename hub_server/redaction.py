"""`redacted`: text without the secrets that may stand in it, for logs and for answers that quote what was asked."""

from __future__ import annotations

import re

HIDDEN = "***"

_TOKEN = re.compile(r"(vf[hsd]_)[0-9A-Za-z]{8,}")
_USERINFO = re.compile(r"(\b[a-z][a-z0-9+.-]{1,20}://)[^/\s\"'@]{1,300}@", re.I)
_HEADER = re.compile(r"\b(basic|bearer)(\s+|%20|\+)[A-Za-z0-9+/=_.~-]{8,}", re.I)
_FIELD = re.compile(
    r"((?:pass(?:word|wd)?|token|secret|api[_-]?key|authorization|device_code)[\"']?\s*[=:]\s*[\"']?)[^\s&\"',;}]+",
    re.I,
)
# One of these is in every text that has something to hide. Looking for them costs a tenth of the expressions above.
_SIGNS = (
    "vfh_",
    "vfs_",
    "vfd_",
    "@",
    "basic",
    "bearer",
    "pass",
    "token",
    "secret",
    "key",
    "authorization",
    "device_code",
)


def without_tokens(text: str) -> str:
    """Hides our tokens only: for messages to people, where words such as 'token:' are just words."""
    return _TOKEN.sub(rf"\g<1>{HIDDEN}", text)


def may_hide(text: str) -> bool:
    """Whether there may be something to hide in it: nearly never, and cheap to ask."""
    lower = text.lower()
    return any(sign in lower for sign in _SIGNS)


def redacted(text: str) -> str:
    """Hides our tokens wherever they stand, user and password in URLs, and what follows names such as `password=`."""
    if not may_hide(text):
        return text
    text = without_tokens(text)
    text = _USERINFO.sub(rf"\g<1>{HIDDEN}@", text)
    text = _HEADER.sub(rf"\g<1> {HIDDEN}", text)
    return _FIELD.sub(rf"\g<1>{HIDDEN}", text)
