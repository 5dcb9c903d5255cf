"""Unpacks the tar that comes by stdin and becomes the program that `arguments.json` in it names.

`site-packages/` in the tar holds the package and the library; what is installed beside the hub is on the path already.
"""

import json
import os
import sys
import tarfile

with tarfile.open(fileobj=sys.stdin.buffer, mode="r|") as tar:
    if hasattr(tarfile, "data_filter"):
        tar.extractall(".", filter="data")
    else:  # Python before 3.11.4; the tar is the hub's own
        tar.extractall(".")
with open("arguments.json", encoding="utf-8") as file:
    arguments = json.load(file)
paths = [os.path.abspath("site-packages")]
for number, given in enumerate(filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))):
    # dill, which datasets hashes functions with, takes a module for a library's only below a folder of this name
    os.makedirs(f"beside{number}")
    os.symlink(given, f"beside{number}/site-packages")
    paths.append(os.path.abspath(f"beside{number}/site-packages"))
environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "HF_HUB_DISABLE_TELEMETRY": "1"}
os.execve(sys.executable, [sys.executable, *arguments], environment)
