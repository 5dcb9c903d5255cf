"""`EnvRef`: the name of an environment as people write it: `name`, `owner/name`, `owner/name@version`."""

from __future__ import annotations

import difflib
import keyword
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass

from verifiers.errors import ConfigError

# Modules that an environment of the same name would hide from this library. Direct dependencies first, then what
# they import in turn; a name outside this list is compared with the environment's own dependencies on installing.
# fmt: off
LIBRARY_MODULES = frozenset(
    {
        "verifiers", "hub_server", "aiohttp", "datasets", "math_verify", "msgspec", "openai", "packaging",
        "pydantic", "rich", "tomlkit", "typer", "uv", "aiosignal", "anyio", "attr", "attrs", "certifi", "click",
        "dill", "frozenlist", "fsspec", "h11", "hf_xet", "httpcore", "httpcore2", "httpx", "httpx2", "huggingface_hub",
        "idna", "jiter", "latex2sympy2_extended", "markdown_it", "mpmath", "multidict", "multiprocess", "numpy",
        "pandas", "propcache", "pyarrow", "pydantic_core", "pygments", "requests", "shellingham", "sniffio", "sympy",
        "tqdm", "truststore", "typing_extensions", "urllib3", "xxhash", "yaml", "yarl", "pip", "setuptools", "wheel",
        "hatchling", "pytest",
    }
)
# fmt: on

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]*[A-Za-z0-9])?")
_OWNER = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.!+_-]*")


@dataclass(frozen=True, slots=True)
class EnvRef:
    """A parsed reference. `-` and `_` mean the same, so `math-env` and `math_env` are one environment.

    >>> ref = EnvRef.parse("ada/math-env@0.2.0")
    >>> ref.owner, ref.name, ref.version, ref.module
    ('ada', 'math-env', '0.2.0', 'math_env')
    """

    name: str
    owner: str | None = None
    version: str | None = None  # None: whichever is there, or the newest

    @classmethod
    def parse(cls, text: str) -> EnvRef:
        """Raises ConfigError for what cannot be an environment's name, saying why."""
        path, at, version = text.strip().partition("@")
        owner, slash, name = path.rpartition("/")
        if (
            not _NAME.fullmatch(name)
            or (slash and not _OWNER.fullmatch(owner))
            or (at and not _VERSION.fullmatch(version))
        ):
            raise ConfigError(
                f"'{text}' is not the name of an environment. Write name, owner/name or owner/name@version, "
                "with letters, digits, '-' and '_' in the name"
            )
        ref = cls(name, owner or None, None if version in ("", "latest") else version)
        taken = taken_by(ref.module)
        if taken:
            raise ConfigError(f"no environment can be called '{name}': its module '{ref.module}' is {taken}")
        return ref

    @property
    def module(self) -> str:
        """The name that Python imports."""
        return self.name.replace("-", "_")

    @property
    def distribution(self) -> str:
        """The normalised name of the package (PEP 503)."""
        return normalised(self.name)

    @property
    def id(self) -> str:
        """The reference without its version."""
        return f"{self.owner}/{self.name}" if self.owner else self.name

    def __str__(self) -> str:
        return f"{self.id}@{self.version}" if self.version else self.id


def normalised(name: str) -> str:
    """A distribution's name as the package index compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def taken_by(module: str) -> str | None:
    """Whose module name this is already, in words; `None` when it is free for an environment."""
    if module in sys.stdlib_module_names:
        return "part of Python's standard library"
    if module == "verifiers":
        return "this library itself"
    if module.lower() in LIBRARY_MODULES:
        return "a package that this library needs"
    if keyword.iskeyword(module):
        return "a word of the Python language"
    return None


def near(name: str, candidates: Iterable[str], limit: int = 3) -> list[str]:
    """The candidates most like `name`, best first; case, `-` and `_` do not count.

    >>> near("gsm8kk", ["wordle", "gsm8k"])
    ['gsm8k']
    """
    by_key = {normalised(candidate): candidate for candidate in candidates}
    key = normalised(name)
    found = difflib.get_close_matches(key, by_key, n=limit, cutoff=0.6)
    starts = [
        k for k in sorted(by_key) if k not in found and len(key) >= 3 and (k.startswith(key) or key.startswith(k))
    ]
    return [by_key[k] for k in (found + starts)[:limit]]
