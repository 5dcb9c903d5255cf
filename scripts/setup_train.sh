#!/bin/sh
# Makes .venv-train with torch for CPUs, transformers and the tests' tools (2 GB), for the trainer and its tests:
#   sh scripts/setup_train.sh
# PYTHON and VENV name another interpreter and another folder. On a machine with GPUs install torch for them yourself.
# Exit status 3: not on this system.
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-python3.11}
venv=${VENV:-.venv-train}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || {
  echo "setup_train: $python is $("$python" --version 2>/dev/null || echo missing); the trainer needs Python 3.11 or newer (PYTHON=… names another). Its tests are skipped without it" >&2
  exit 3
}
[ -x "$venv/bin/python" ] || "$python" -m venv --without-pip "$venv"
uv=.venv/bin/uv
[ -x "$uv" ] || uv=$(command -v uv) || {
  echo "setup_train: no uv; run sh scripts/setup.sh first" >&2
  exit 3
}
echo "setup_train: installing torch 2.13.0, requirements/train.txt and requirements/test.txt into $venv"
UV_FIND_LINKS="${UV_FIND_LINKS:-${PIP_FIND_LINKS:-}}"
export UV_FIND_LINKS
# torch first and by itself: its builds have one version number and many hashes. Only a build for CPUs is asked for, as
# the one of usual indexes brings 4 GB of CUDA.
"$uv" pip install --quiet --python "$venv/bin/python" --compile-bytecode 'torch==2.13.0+cpu' || {
  echo "setup_train: no torch 2.13.0+cpu for $("$python" --version), which usual package indexes do not have: let PIP_FIND_LINKS name a folder with that wheel, or UV_INDEX PyTorch's index for CPUs. The trainer's tests are skipped without it" >&2
  exit 3
}
"$uv" pip install --quiet --python "$venv/bin/python" --compile-bytecode -r requirements/train.txt -r requirements/test.txt
"$uv" pip install --quiet --python "$venv/bin/python" --no-deps -e .
echo "setup_train: run the tests with $venv/bin/python -m pytest tests/rl"
