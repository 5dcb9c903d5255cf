"""Harmless, bounded programs that try what a sandbox must not let them, each with the class in which it must end.

(name, program, stdin, limits that differ, class, stdout or None). `__…__` is filled in as in
data/sandbox_programs.jsonl.
"""

# What level 1 does not hold or lacks: see docs/sandboxes.md.
NEED_NAMESPACES = {"multiprocessing", "many_files", "two_files", "no_descriptors", "setuid", "not_root"}

_TRY = "try:\n    {0}\n    print('DONE')\nexcept (OSError, PermissionError) as error:\n    print('blocked')\n"


def attempt(line: str, before: str = "import os, socket, ctypes") -> str:
    return f"{before}\n" + _TRY.format(line)


MORE = [
    # ends
    ("exit_text", "import sys\nsys.exit('no good')\n", "", {}, "nonzero-exit", ""),
    ("exit_none", "import sys\nsys.exit(None)\n", "", {}, "ok", ""),
    ("exit_builtin", "print(1)\nexit()\nprint(2)\n", "", {}, "ok", "1\n"),
    ("exit_256", "import sys\nsys.exit(256)\n", "", {}, "ok", ""),
    ("exit_hard", "import os\nos.write(1, b'out')\nos._exit(7)\n", "", {}, "nonzero-exit", "out"),
    ("abort", "import os\nos.abort()\n", "", {}, "nonzero-exit", ""),
    ("segfault", "import ctypes\nctypes.string_at(0)\n", "", {}, "nonzero-exit", ""),
    ("kill_self", "import os\nos.kill(os.getpid(), 9)\n", "", {}, "nonzero-exit", ""),
    ("term_self", "import os\nos.kill(os.getpid(), 15)\nprint('ALIVE')\n", "", {}, "nonzero-exit", ""),
    ("eof", "input()\n", "", {}, "nonzero-exit", ""),
    ("recursion", "def f(): f()\nf()\n", "", {}, "nonzero-exit", ""),
    # what an interpreter does besides
    ("atexit", "import atexit\natexit.register(print, 'bye')\nprint('hi')\n", "", {}, "ok", "hi\nbye\n"),
    ("unclosed", "f = open(1, 'w', closefd=False)\nf.write('kept')\n", "", {}, "ok", "kept"),
    (
        "thread_outlives",
        "import threading, time\nthreading.Thread(target=lambda: (time.sleep(.2), print('late'))).start()\n",
        "", {}, "ok", "late\n",
    ),
    ("fast_input", "import os\nprint(len(os.read(0, os.fstat(0).st_size or 99)))\n", "12345", {}, "ok", "5\n"),
    ("bytes", "import sys\nsys.stdout.buffer.write(bytes(range(256)))\n", "", {}, "ok", None),
    ("pickle_main", "import pickle\nclass A: pass\nprint(type(pickle.loads(pickle.dumps(A()))).__name__)\n",
     "", {}, "ok", "A\n"),
    ("dataclass", "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\nprint(P(1))\n",
     "", {}, "ok", "P(x=1)\n"),
    (
        "multiprocessing",
        "from concurrent.futures import ProcessPoolExecutor\nimport math\nif __name__ == '__main__':\n"
        "    with ProcessPoolExecutor(2) as pool: print(list(pool.map(math.sqrt, [4, 9])))\n",
        "", {"wall_s": 20, "cpu_s": 10}, "ok", "[2.0, 3.0]\n",
    ),
    ("asyncio", "import asyncio\nasyncio.run(asyncio.sleep(0))\nprint('ok')\n", "", {}, "ok", "ok\n"),
    ("subprocess", "import subprocess, sys\nprint(subprocess.run([sys.executable, '-c', 'print(5)'], "
     "capture_output=True, text=True).stdout)\n", "", {}, "ok", "5\n\n"),
    # time
    ("sleep", "import time\ntime.sleep(60)\n", "", {"wall_s": 1}, "timeout", ""),
    ("stopped", "import os\nos.kill(os.getpid(), 19)\n", "", {"wall_s": 1}, "timeout", ""),
    ("big_power", "x = 3 ** 10 ** 8\nprint('GOT')\n", "", {"wall_s": 2, "cpu_s": 1}, "timeout", ""),
    ("swallowed", "while True:\n    try:\n        while True: pass\n    except BaseException: pass\n",
     "", {"wall_s": 2, "cpu_s": 1}, "timeout", ""),
    # memory
    ("memory_shared", "import mmap\nm = mmap.mmap(-1, 800 << 20)\nfor i in range(0, 800 << 20, 4096): m[i] = 1\n"
     "print('GOT')\n", "", {}, "memory-limit", ""),
    ("memory_list", "a = []\nwhile True: a.append(bytearray(1 << 20))\n", "", {}, "memory-limit", ""),
    ("memory_absurd", "b = bytearray(1 << 50)\n", "", {}, "memory-limit", ""),
    # output
    ("stderr_flood", "import sys\nwhile True: sys.stderr.write('x' * 4096)\n", "", {}, "output-limit", ""),
    ("child_flood", "import os\nos.fork()\nwhile True: os.write(1, b'x' * 4096)\n", "", {}, "output-limit", None),
    # processes: of 64 at most; some backends need a few more than were asked for
    ("process_tree", "import os, time\nfirst, (r, w) = os.getpid(), os.pipe()\nfor _ in range(6):\n    try: os.fork()\n"
     "    except OSError: pass\nos.write(w, b'x')\ntime.sleep(2)\n"
     "if os.getpid() == first: print('DONE' if len(os.read(r, 99)) > 33 else 'stopped')\n", "", {}, "ok", "stopped\n"),
    ("threads", "import threading\nend = threading.Event()\nfor n in range(64):\n"
     "    try: threading.Thread(target=end.wait).start()\n"
     "    except RuntimeError: break\nend.set()\nprint('DONE' if n > 33 else 'stopped')\n",
     "", {"memory_mb": 1024}, "ok", "stopped\n"),
    ("forks_in_turn", "import os\nfor _ in range(40):\n    pid = os.fork()\n    if pid == 0: os._exit(0)\n"
     "    os.waitpid(pid, 0)\nprint('ok')\n", "", {"wall_s": 20, "cpu_s": 10}, "ok", "ok\n"),
    # files
    ("many_files", "try:\n    for i in range(100000): open(str(i), 'w').close()\n    print('WROTE')\n"
     "except OSError: print('stopped')\n", "", {"wall_s": 20, "cpu_s": 15}, "file-limit", "stopped\n"),
    ("two_files", "try:\n    for n in 'ab':\n        with open('/tmp/' + n, 'wb') as f:\n"
     "            for i in range(8): f.write(b'x' * (1 << 20)); f.flush()\n    print('WROTE')\n"
     "except OSError: print('stopped')\n", "", {}, "file-limit", "stopped\n"),
    # files of others
    ("write_outside", attempt("open('__OUTSIDE_DIR__/x', 'w').write('x')"), "", {}, "blocked-file", "blocked\n"),
    ("list_outside", attempt("os.listdir('__OUTSIDE_DIR__')"), "", {}, "blocked-file", "blocked\n"),
    ("symlink", attempt("os.symlink('__SECRET_FILE__', 'l'); open('l').read()"), "", {}, "blocked-file", "blocked\n"),
    ("proc_root", attempt("open('/proc/1/root__SECRET_FILE__').read()"), "", {}, "blocked-file", "blocked\n"),
    ("shadow", attempt("open('/etc/shadow').read()"), "", {}, "blocked-file", "blocked\n"),
    ("write_usr", attempt("open('/usr/vf-test', 'w')"), "", {}, "blocked-file", "blocked\n"),
    ("write_etc", attempt("open('/etc/passwd', 'a')"), "", {}, "blocked-file", "blocked\n"),
    ("core_pattern", attempt("open('/proc/sys/kernel/core_pattern', 'r+').close()"),
     "", {}, "blocked-file", "blocked\n"),
    ("kmem", attempt("open('/dev/kmem')"), "", {}, "blocked-file", "blocked\n"),
    ("disk", attempt("open('/dev/vda', 'rb')"), "", {}, "blocked-file", "blocked\n"),
    # the network
    ("udp", attempt("s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.sendto(b'x', ('192.0.2.1', 9))"),
     "", {}, "blocked-network", "blocked\n"),
    ("abstract", attempt("s = socket.socket(socket.AF_UNIX); s.connect(chr(0) + '__ABSTRACT__')"),
     "", {}, "blocked-network", "blocked\n"),
    ("packet", attempt("socket.socket(socket.AF_PACKET, socket.SOCK_RAW)"), "", {}, "blocked-network", "blocked\n"),
    ("netlink", attempt("socket.socket(16, socket.SOCK_RAW)"), "", {}, "blocked-network", "blocked\n"),
    ("vsock", attempt("socket.socket(40, socket.SOCK_STREAM)"), "", {}, "blocked-network", "blocked\n"),
    # the kernel
    ("kill_others", attempt("os.kill(__TEST_PID__, 0)"), "", {}, "ok", "blocked\n"),
    ("kill_first", attempt("os.kill(1, 9); import time; time.sleep(.2)") + "print('still here')\n",
     "", {}, "ok", None),
    *[
        (name, attempt(f"r = ctypes.CDLL(None, use_errno=True).{call}; assert r == 0 or exec('raise OSError')"),
         "", {}, "ok", "blocked\n")
        for name, call in [
            ("unshare_user", "unshare(0x10000000)"),
            ("unshare_mount", "unshare(0x20000)"),
            ("mount", "mount(b'x', b'/tmp', b'tmpfs', 0, None)"),
            ("umount", "umount2(b'/proc', 2)"),
            ("chroot", "chroot(b'/tmp')"),
            ("ptrace", "ptrace(16, os.getppid(), 0, 0)"),
            ("keyctl", "syscall(250, 0, -3, 1)"),
            ("bpf", "syscall(321, 0, None, 0)"),
            ("io_uring", "syscall(425, 1, ctypes.create_string_buffer(120))"),
            ("clone_user", "syscall(56, 0x10000000 | 17, 0, 0, 0, 0)"),
            ("sethostname", "sethostname(b'x', 1)"),
            ("setuid", "setuid(0)"),
            ("limit_first", "prlimit(1, 7, ctypes.create_string_buffer(16), None)"),
        ]
    ],
    ("not_root", "import os\nprint(os.getuid(), os.getgid())\n", "", {}, "ok", "1000 1000\n"),
    ("no_descriptors", "import os\nprint(sorted(os.listdir('/proc/self/fd'))[:3], len(os.listdir('/proc/self/fd')))\n",
     "", {}, "ok", "['0', '1', '2'] 4\n"),
]  # fmt: skip
