"""Writes the seccomp profile that podman is given, from the tables of the filters:  python scripts/seccomp_profile.py

Docker keeps its own profile, which is as narrow; podman's lets programs make user namespaces.
"""

import json
from itertools import pairwise
from pathlib import Path

from seccomp_filters import EAFNOSUPPORT, ENOSYS, EPERM, FAMILIES, NEW_NAMESPACES, REFUSED, TERMINAL_REQUESTS, UNKNOWN

TARGET = Path(__file__).parents[1] / "verifiers" / "sandbox" / "inside" / "seccomp.json"


def rule(names: list[str], error: int, *arguments: dict[str, int | str]) -> dict[str, object]:
    found: dict[str, object] = {"names": names, "action": "SCMP_ACT_ERRNO", "errnoRet": error}
    return {**found, "args": list(arguments)} if arguments else found


def argument(index: int, op: str, value: int, value_two: int = 0) -> dict[str, int | str]:
    return {"index": index, "op": f"SCMP_CMP_{op}", "value": value, "valueTwo": value_two}


def families_refused() -> list[dict[str, object]]:
    """Every family but ours, as ranges: rules are joined by or, so "none of these" cannot be said in one."""
    bounds = [-1, *sorted(FAMILIES)]
    between = [n for low, high in pairwise(bounds) for n in range(low + 1, high)]
    single = [rule(["socket"], EAFNOSUPPORT, argument(0, "EQ", n)) for n in between]
    return [*single, rule(["socket"], EAFNOSUPPORT, argument(0, "GT", max(FAMILIES)))]


def profile() -> dict[str, object]:
    flags = [1 << bit for bit in range(32) if NEW_NAMESPACES >> bit & 1]
    return {
        "defaultAction": "SCMP_ACT_ALLOW",
        "archMap": [
            {"architecture": "SCMP_ARCH_X86_64", "subArchitectures": []},
            {"architecture": "SCMP_ARCH_AARCH64", "subArchitectures": []},
        ],
        "syscalls": [
            rule(sorted(REFUSED), EPERM),
            rule(sorted(UNKNOWN), ENOSYS),
            *(rule(["clone"], EPERM, argument(0, "MASKED_EQ", flag, flag)) for flag in flags),
            *(rule(["ioctl"], EPERM, argument(1, "EQ", request)) for request in TERMINAL_REQUESTS),
            *families_refused(),
        ],
    }


def text() -> str:
    return json.dumps(profile(), indent=1) + "\n"


if __name__ == "__main__":
    TARGET.write_text(text())
    print(f"wrote {TARGET}")
