"""The child process that serves a GGUF file: `python -P local_server.py MODEL.gguf [options]`.

It writes one JSON line, `{"address": "http://127.0.0.1:PORT"}`, on its standard output when it can answer, and
lives as long as its standard input stays open: a parent that ends in any way, `kill -9` included, takes it along.
Only the standard library and llama.cpp are loaded here, so that it is up within a second.
"""

import argparse
import json
import os
import select
import sys
from pathlib import Path

PARENT_CHECK_S = 1.0


def main(argv: list[str] | None = None) -> None:
    options = _parse(argv)
    parent_pid = os.getppid()
    ready_line = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # llama.cpp writes to standard output too; the parent reads nothing but our one line there
    try:
        server = _serve(options)
    except RuntimeError as error:  # llama.cpp has said why above
        sys.exit(f"{options.model}: {error}")
    ready_line.write(json.dumps({"address": server.listening_address}) + "\n")
    ready_line.close()
    _wait_for_end_of_parent(parent_pid)
    os._exit(0)  # the server's own shutdown waits for requests that nobody will read any more


def _parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path, help="the GGUF file")
    parser.add_argument("--alias", default=None, help="the model name in requests and replies (default: the file's)")
    parser.add_argument("--slots", type=int, default=8, help="requests answered at the same time")
    parser.add_argument("--slot-tokens", type=int, default=2048, help="context of each slot, prompt and answer")
    parser.add_argument("--threads", type=int, default=0, help="0: one for each core")
    return parser.parse_args(argv)


def _serve(options: argparse.Namespace):
    # Read by OpenMP when llama.cpp is loaded. By default its threads spin while they wait for each other, which starves
    # them wherever something else uses the cores too: at a load of 7 on two cores, 128 tokens took 22 s spinning and
    # 5 s sleeping, and a sixth of the processor time.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    import xllamacpp  # pyright: ignore[reportMissingImports]  (an extra, without types)

    params = xllamacpp.CommonParams()  # pyright: ignore[reportAttributeAccessIssue]
    params.model.path = str(options.model)
    params.model_alias = {options.alias or options.model.stem}
    params.hostnames = ["127.0.0.1"]
    params.port = 0  # any free one
    params.cors_origins = "http://127.0.0.1"  # web pages of other places have no business here
    params.ui = False
    params.endpoint_slots = False
    params.n_parallel = options.slots
    params.n_ctx = options.slots * options.slot_tokens
    params.cache_ram_mib = 0  # saved prompts of other conversations; rollouts seldom come back to one
    params.verbosity = 1  # warnings
    if options.threads:
        params.cpuparams.n_threads = options.threads
        params.cpuparams_batch.n_threads = options.threads
    return xllamacpp.Server(params)  # pyright: ignore[reportAttributeAccessIssue]


def _wait_for_end_of_parent(parent_pid: int) -> None:
    """Return when standard input ends, or when the parent is another one.

    The second matters where a forked sibling still holds the other end of our input.
    """
    while os.getppid() == parent_pid:
        readable, _, _ = select.select([sys.stdin], [], [], PARENT_CHECK_S)
        if readable and not os.read(0, 4096):
            return


if __name__ == "__main__":
    main()
