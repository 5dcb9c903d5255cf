"""What is said when a library that only one adapter needs is not installed."""

from __future__ import annotations

from importlib.util import find_spec

from verifiers.errors import SetupError


def require(module: str, package: str, who: str) -> None:
    """Raises SetupError when `module` is not there to be imported. Does not import it: some take seconds."""
    if find_spec(module) is None:
        raise SetupError(f"{who} needs the package '{package}', which is not installed. Try: uv pip install {package}")
