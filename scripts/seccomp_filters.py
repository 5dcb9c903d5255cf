"""Writes the seccomp filters of the sandbox, raw BPF for each architecture:  python scripts/seccomp_filters.py

`jail` is for programs in namespaces of their own; `bare` for those without, which therefore get no sockets at all.
"""

import struct
from pathlib import Path

TARGET = Path(__file__).parents[1] / "verifiers" / "sandbox" / "inside"

EPERM, EACCES, ENOSYS, EAFNOSUPPORT = 1, 13, 38, 97
NEWEST = 467  # this call and later ones are not known here, so they are answered as an older kernel would

# name: number on x86_64, number on aarch64 (None: not there)
REFUSED = {
    # other processes
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "process_madvise": (440, 440), "pidfd_getfd": (438, 438), "kcmp": (312, 272),
    # mounts and namespaces
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "move_mount": (429, 429),
    "open_tree": (428, 428), "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432),
    "fspick": (433, 433), "mount_setattr": (442, 442), "chroot": (161, 51), "unshare": (272, 97), "setns": (308, 268),
    "statmount": (457, 457), "listmount": (458, 458),
    # parts of the kernel with a history of holes
    "bpf": (321, 280), "perf_event_open": (298, 241), "keyctl": (250, 219), "add_key": (248, 217),
    "request_key": (249, 218), "userfaultfd": (323, 282), "fanotify_init": (300, 262), "memfd_secret": (447, 447),
    "open_by_handle_at": (304, 265), "name_to_handle_at": (303, 264), "lookup_dcookie": (212, 18),
    "migrate_pages": (256, 238), "move_pages": (279, 239), "modify_ldt": (154, None), "personality": (135, 92),
    # the machine
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "init_module": (175, 105), "finit_module": (313, 273),
    "delete_module": (176, 106), "create_module": (174, None), "reboot": (169, 142), "swapon": (167, 224),
    "swapoff": (168, 225), "acct": (163, 89), "quotactl": (179, 60), "quotactl_fd": (443, 443), "syslog": (103, 116),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "clock_adjtime": (305, 266), "adjtimex": (159, 171),
    "iopl": (172, None), "ioperm": (173, None), "nfsservctl": (180, 42), "uselib": (134, None), "_sysctl": (156, None),
    "sysfs": (139, None), "vhangup": (153, 58), "sethostname": (170, 161), "setdomainname": (171, 162),
}  # fmt: skip
UNKNOWN = {  # programs that meet ENOSYS use the older call
    "clone3": (435, 435), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
}  # fmt: skip
# What a user may do to his other processes, refused for process 1, which is the sandbox's own: the numbers, and which
# argument is the process.
NOT_OF_FIRST = {
    "prlimit64": (302, 261, 0), "sched_setparam": (142, 118, 0), "sched_setscheduler": (144, 119, 0),
    "sched_setaffinity": (203, 122, 0), "sched_setattr": (314, 274, 0),
}  # fmt: skip
# The same for calls whose first argument says what the second is: the numbers, and the word for "all of a user".
NOT_OF_USER = {"setpriority": (141, 140, 2), "ioprio_set": (251, 30, 3)}
CLONE, SOCKET, IOCTL = (56, 220), (41, 198), (16, 29)

NEW_NAMESPACES = 0x7E020000  # every CLONE_NEW… flag that clone knows
FAMILIES = (1, 2, 10)  # AF_UNIX, AF_INET, AF_INET6
TERMINAL_REQUESTS = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX: they write to a terminal as if typed

ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # column of the tables, AUDIT_ARCH_…

LOAD, AND, JUMP_EQUAL, JUMP_AT_LEAST, RETURN = 0x20, 0x54, 0x15, 0x35, 0x06
NUMBER, ARCHITECTURE, FIRST_ARGUMENT, SECOND_ARGUMENT = 0, 4, 16, 24  # offsets in struct seccomp_data
ALLOW, KILL, ERROR = 0x7FFF0000, 0x80000000, 0x00050000

Instruction = tuple[int, int, int, int]  # code, jump if true, jump if false, value


def refuse(number: int, error: int) -> list[Instruction]:
    return [(JUMP_EQUAL, 0, 1, number), (RETURN, 0, 0, ERROR | error)]


def filter_of(architecture: str, kind: str) -> bytes:
    column, audit_number = ARCHITECTURES[architecture]
    code: list[Instruction] = [
        (LOAD, 0, 0, ARCHITECTURE),
        (JUMP_EQUAL, 1, 0, audit_number),
        (RETURN, 0, 0, KILL),
        (LOAD, 0, 0, NUMBER),
        (JUMP_AT_LEAST, 0, 1, NEWEST),  # on x86_64 also the x32 calls, which have a high bit set
        (RETURN, 0, 0, ERROR | ENOSYS),
    ]
    for table, error in ((REFUSED, EPERM), (UNKNOWN, ENOSYS)):
        for numbers in table.values():
            if numbers[column] is not None:
                code += refuse(numbers[column], error)
    for *numbers, argument in NOT_OF_FIRST.values():
        code += [
            (JUMP_EQUAL, 0, 4, numbers[column]),
            (LOAD, 0, 0, FIRST_ARGUMENT + 8 * argument),
            (JUMP_EQUAL, 0, 1, 1),
            (RETURN, 0, 0, ERROR | EPERM),
            (RETURN, 0, 0, ALLOW),
        ]
    for *numbers, all_of_user in NOT_OF_USER.values():
        code += [
            (JUMP_EQUAL, 0, 6, numbers[column]),
            (LOAD, 0, 0, FIRST_ARGUMENT),
            (JUMP_EQUAL, 2, 0, all_of_user),
            (LOAD, 0, 0, SECOND_ARGUMENT),
            (JUMP_EQUAL, 0, 1, 1),
            (RETURN, 0, 0, ERROR | EPERM),
            (RETURN, 0, 0, ALLOW),
        ]
    code += [
        (JUMP_EQUAL, 0, 5, CLONE[column]),
        (LOAD, 0, 0, FIRST_ARGUMENT),
        (AND, 0, 0, NEW_NAMESPACES),
        (JUMP_EQUAL, 1, 0, 0),
        (RETURN, 0, 0, ERROR | EPERM),
        (RETURN, 0, 0, ALLOW),
        (JUMP_EQUAL, 0, 5, IOCTL[column]),
        (LOAD, 0, 0, SECOND_ARGUMENT),
        (JUMP_EQUAL, 1, 0, TERMINAL_REQUESTS[0]),
        (JUMP_EQUAL, 0, 1, TERMINAL_REQUESTS[1]),
        (RETURN, 0, 0, ERROR | EPERM),
        (RETURN, 0, 0, ALLOW),
    ]
    if kind == "bare":
        code += refuse(SOCKET[column], EACCES)
    else:
        code += [
            (JUMP_EQUAL, 0, 5, SOCKET[column]),
            (LOAD, 0, 0, FIRST_ARGUMENT),
            (JUMP_EQUAL, 3, 0, FAMILIES[0]),
            (JUMP_EQUAL, 2, 0, FAMILIES[1]),
            (JUMP_EQUAL, 1, 0, FAMILIES[2]),
            (RETURN, 0, 0, ERROR | EAFNOSUPPORT),
        ]
    code.append((RETURN, 0, 0, ALLOW))
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in code)


def filters() -> dict[str, bytes]:
    return {f"{machine}-{kind}.bpf": filter_of(machine, kind) for machine in ARCHITECTURES for kind in ("jail", "bare")}


if __name__ == "__main__":
    for name, program in filters().items():
        (TARGET / name).write_bytes(program)
        print(f"wrote {TARGET / name}: {len(program) // 8} instructions")
