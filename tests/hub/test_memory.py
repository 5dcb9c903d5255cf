"""What a process of the hub keeps of the memory that many requests at once took."""

import subprocess
import sys
import textwrap

import pytest

# As many threads as a server has, each of which asks the C library for memory; then how many heaps that took.
PROGRAM = textwrap.dedent(
    """
    import ctypes, re, sys, tempfile, threading
    if sys.argv[1] == "few":
        from hub_server.memory import keep_few_arenas
        keep_few_arenas()
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    ready = threading.Barrier(8)
    def work():
        ready.wait()
        libc.malloc(100_000)
        ready.wait()
    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    libc.fopen.restype = ctypes.c_void_p
    with tempfile.NamedTemporaryFile() as told:
        file = ctypes.c_void_p(libc.fopen(told.name.encode(), b"w"))
        libc.malloc_info(0, file)
        libc.fclose(file)
        print(len(re.findall("<heap nr", told.read().decode())))
    """
)


def heaps(how):
    done = subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's heaps")
def test_threads_share_two_heaps():
    assert heaps("few") <= 2 < heaps("as they come")
