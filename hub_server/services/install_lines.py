"""The commands that install an environment from this hub; none names the public index, which installers ask anyway.

Each goes through the index of that one environment, which has it and our `verifiers` and nothing else: a name of a
dependency can never be answered from here.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from verifiers.archives.own_wheel import NAME as OWN_NAME

TOKEN = "$VF_HUB_TOKEN"


@dataclass(frozen=True, slots=True)
class InstallLines:
    """Shell commands, with the token as `$VF_HUB_TOKEN` when the environment is private."""

    index_url: str
    vf_install: str
    uv_pip: str
    uv_add: str
    pip: str
    warning: str | None  # why only `vf_install` is right


def install_lines(
    hub_url: str,
    owner: str,
    name: str,
    version: str | None = None,
    *,
    private: bool,
    requires: Iterable[str] = (),
    own_version: str = "1.0.0",
) -> InstallLines:
    """`hub_url` without a slash at the end. `version`: `None` for the newest. `requires`: what the release needs.

    >>> install_lines("https://hub.example", "ada", "math-env", private=False).uv_pip
    'uv pip install --extra-index-url https://hub.example/ada/math-env/simple/ math-env'
    """
    index = f"{hub_url}/{owner}/{name}/simple/"
    pinned = name if version is None else shlex.quote(f"{name}=={version}")
    url = f'"{_with_token(index)}"' if private else index
    index_name = f"{owner}-{name}".replace(".", "-")
    add = f"uv add --index {index_name}={index} {pinned}"
    if private:
        variable = re.sub(r"[^A-Z0-9]", "_", index_name.upper())
        add = f"UV_INDEX_{variable}_USERNAME=__token__ UV_INDEX_{variable}_PASSWORD={TOKEN} {add}"
    vf_install = f"vf-install {owner}/{name}" + (f"@{version}" if version else "")
    return InstallLines(
        index_url=index,
        vf_install=vf_install,
        uv_pip=f"uv pip install --extra-index-url {url} {pinned}",
        uv_add=add,
        pip=f"pip install --extra-index-url {url} {pinned}",
        warning=_warning(requires, own_version, vf_install),
    )


def _warning(requires: Iterable[str], own_version: str, vf_install: str) -> str | None:
    """uv finds our library on this index alone and stops; pip would take another one of that name from elsewhere."""
    for text in requires:
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue
        is_ours = canonicalize_name(requirement.name) == OWN_NAME
        if is_ours and not requirement.specifier.contains(own_version, prereleases=True):
            return (
                f"this release asks for {OWN_NAME}{requirement.specifier}, and this hub's library is {own_version}: "
                f"uv refuses, and pip installs another library of that name. Use: {vf_install}"
            )
    return None


def _with_token(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=f"__token__:{TOKEN}@{parts.netloc}").geturl()
