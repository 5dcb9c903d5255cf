"""The seccomp filters that are shipped, run here instruction by instruction for both architectures."""

import importlib.util
import struct
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SPEC = importlib.util.spec_from_file_location("seccomp_filters", ROOT / "scripts" / "seccomp_filters.py")
script = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(script)

ALLOW, KILL = 0x7FFF0000, 0x80000000
EPERM, EACCES, ENOSYS, EAFNOSUPPORT = (0x50000 | number for number in (1, 13, 38, 97))
FILTERS = [(machine, kind) for machine in script.ARCHITECTURES for kind in ("jail", "bare")]


def verdict(machine: str, kind: str, number: int, *arguments: int, architecture: int | None = None) -> int:
    """What the filter returns for a call."""
    program = (script.TARGET / f"{machine}-{kind}.bpf").read_bytes()
    audit_number = script.ARCHITECTURES[machine][1] if architecture is None else architecture
    padded = [*arguments, 0, 0, 0, 0, 0, 0][:6]
    data = struct.pack("<IIQ6Q", number, audit_number, 0, *padded)
    code = list(struct.iter_unpack("<HBBI", program))
    position = accumulator = 0
    while True:
        kind_of, if_true, if_false, value = code[position]
        position += 1
        if kind_of == 0x20:
            (accumulator,) = struct.unpack_from("<I", data, value)
        elif kind_of == 0x54:
            accumulator &= value
        elif kind_of == 0x15:
            position += if_true if accumulator == value else if_false
        elif kind_of == 0x35:
            position += if_true if accumulator >= value else if_false
        else:
            assert kind_of == 0x06
            return value


def test_the_shipped_filters_are_the_generated_ones():
    for name, program in script.filters().items():
        assert (script.TARGET / name).read_bytes() == program, "run: python scripts/seccomp_filters.py"


@pytest.mark.parametrize(("machine", "kind"), FILTERS)
def test_every_refused_call_is_refused(machine, kind):
    column = script.ARCHITECTURES[machine][0]
    for name, numbers in script.REFUSED.items():
        if numbers[column] is not None:
            assert verdict(machine, kind, numbers[column]) == EPERM, name
    for name, numbers in script.UNKNOWN.items():
        assert verdict(machine, kind, numbers[column]) == ENOSYS, name


@pytest.mark.parametrize(("machine", "kind"), FILTERS)
def test_ordinary_calls_are_allowed(machine, kind):
    ordinary = {"x86_64": (0, 1, 9, 59, 231, 257, 319, 434), "aarch64": (63, 64, 222, 221, 94, 56, 279, 434)}
    for number in ordinary[machine]:  # read, write, mmap, execve, exit_group, openat, memfd_create, pidfd_open
        assert verdict(machine, kind, number) == ALLOW, number


@pytest.mark.parametrize(("machine", "kind"), FILTERS)
def test_calls_of_another_architecture_end_the_program(machine, kind):
    assert verdict(machine, kind, 0, architecture=0x40000003) == KILL  # i386
    assert verdict(machine, kind, 0x40000000 | 1) == ENOSYS  # x32
    assert verdict(machine, kind, script.NEWEST) == ENOSYS


@pytest.mark.parametrize(("machine", "kind"), FILTERS)
def test_clone_makes_processes_and_threads_but_no_namespaces(machine, kind):
    clone = script.CLONE[script.ARCHITECTURES[machine][0]]
    assert verdict(machine, kind, clone, 0x01200011) == ALLOW  # fork
    assert verdict(machine, kind, clone, 0x003D0F00) == ALLOW  # a thread
    for bit in (17, 25, 26, 27, 28, 29, 30):
        assert verdict(machine, kind, clone, 1 << bit | 17) == EPERM


@pytest.mark.parametrize(("machine", "kind"), FILTERS)
def test_the_first_process_is_left_alone(machine, kind):
    column = script.ARCHITECTURES[machine][0]
    for *numbers, _ in script.NOT_OF_FIRST.values():
        assert verdict(machine, kind, numbers[column], 1) == EPERM
        assert verdict(machine, kind, numbers[column], 0, 1) == ALLOW
        assert verdict(machine, kind, numbers[column], 7) == ALLOW
    for *numbers, all_of_user in script.NOT_OF_USER.values():
        assert verdict(machine, kind, numbers[column], all_of_user, 0) == EPERM
        assert verdict(machine, kind, numbers[column], 0, 1) == EPERM
        assert verdict(machine, kind, numbers[column], 0, 0) == ALLOW


@pytest.mark.parametrize(("machine", "kind"), FILTERS)
def test_nothing_is_typed_into_a_terminal(machine, kind):
    ioctl = script.IOCTL[script.ARCHITECTURES[machine][0]]
    assert verdict(machine, kind, ioctl, 0, 0x5401) == ALLOW
    assert verdict(machine, kind, ioctl, 0, 0x5412) == EPERM
    assert verdict(machine, kind, ioctl, 0, 0x541C) == EPERM


@pytest.mark.parametrize("machine", script.ARCHITECTURES)
def test_sockets_are_of_few_families_and_of_none_without_namespaces(machine):
    number = script.SOCKET[script.ARCHITECTURES[machine][0]]
    for family in range(50):
        allowed = family in (1, 2, 10)
        assert verdict(machine, "jail", number, family) == (ALLOW if allowed else EAFNOSUPPORT)
        assert verdict(machine, "bare", number, family) == EACCES
