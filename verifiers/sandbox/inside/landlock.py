"""Landlock: rules of the kernel that a process lays on itself and its children, without any privilege.

Used where new namespaces are refused. Which rights exist depends on the kernel's ABI number.
"""

from __future__ import annotations

import ctypes
import os
import struct

from verifiers.sandbox.inside import kernel

_CREATE, _ADD, _RESTRICT = 444, 445, 446  # the same numbers on every architecture
_EXECUTE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 2, 1 << 3
_WRITE_FILE, _TRUNCATE, _IOCTL_DEV = 1 << 1, 1 << 14, 1 << 15
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_ON_FILES = _EXECUTE | _READ_FILE | _WRITE_FILE | _TRUNCATE | _IOCTL_DEV
_BIND_TCP_AND_CONNECT_TCP = 3
_SCOPE_ABSTRACT_SOCKETS_AND_SIGNALS = 3


def abi() -> int:
    """0 when the kernel has no Landlock, or has it switched off."""
    try:
        return kernel.syscall(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    except OSError:
        return 0


def _all_rights(version: int) -> int:
    last = {1: 12, 2: 13, 3: 14, 4: 14}.get(version, 15)
    return (1 << (last + 1)) - 1


def restrict(readable: list[str], writable: list[str]) -> None:
    """From now on this process reads and executes only below `readable` and `writable`, and writes below the latter.

    TCP is refused from ABI 4 on; abstract sockets, and signals to processes outside, from ABI 6 on.
    """
    version = abi()
    rights = _all_rights(version)
    fields = [rights, _BIND_TCP_AND_CONNECT_TCP if version >= 4 else 0]
    if version >= 6:
        fields.append(_SCOPE_ABSTRACT_SOCKETS_AND_SIGNALS)
    packed = struct.pack(f"={len(fields)}Q", *fields)
    if version < 4:
        packed = packed[:8]
    rules = kernel.syscall(_CREATE, packed, ctypes.c_size_t(len(packed)), ctypes.c_uint32(0))
    try:
        for path in readable:
            _allow(rules, path, rights & _READ)
        for path in writable:
            _allow(rules, path, rights)
        kernel.no_new_privileges()
        kernel.syscall(_RESTRICT, ctypes.c_int(rules), ctypes.c_uint32(0))
    finally:
        os.close(rules)


def _allow(rules: int, path: str, rights: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        if not os.path.isdir(path):
            rights &= _ON_FILES
        rule = struct.pack("=Qi", rights, place)
        kernel.syscall(_ADD, ctypes.c_int(rules), ctypes.c_int(1), rule, ctypes.c_uint32(0))
    finally:
        os.close(place)
