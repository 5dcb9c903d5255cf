#!/bin/sh
# Makes .venv-vllm with a vLLM for CPUs (2.4 GB), for the tests marked `vllm`:  sh scripts/setup_vllm.sh
# Its dependencies are pinned so tightly that it gets a virtual environment of its own; tests talk to it by HTTP.
# PYTHON and VENV name another interpreter and another folder. Exit status 3: not on this system.
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-python3.11}
venv=${VENV:-.venv-vllm}
"$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null || {
  echo "setup_vllm: $python is $("$python" --version 2>/dev/null || echo missing); vLLM for CPUs needs Python 3.11 exactly (PYTHON=… names another). The tests marked vllm are skipped without it" >&2
  exit 3
}
[ "$(uname -sm)" = "Linux x86_64" ] || {
  echo "setup_vllm: vLLM for CPUs exists for Linux on x86_64, this is $(uname -sm). The tests marked vllm are skipped without it" >&2
  exit 3
}
[ -x "$venv/bin/python" ] || "$python" -m venv --without-pip "$venv"
uv=.venv/bin/uv
[ -x "$uv" ] || uv=$(command -v uv) || {
  echo "setup_vllm: no uv; run sh scripts/setup.sh first" >&2
  exit 3
}
echo "setup_vllm: installing requirements/vllm.txt into $venv"
UV_FIND_LINKS="${UV_FIND_LINKS:-${PIP_FIND_LINKS:-}}" "$uv" pip install --quiet --python "$venv/bin/python" \
  --compile-bytecode --override requirements/vllm-override.txt -r requirements/vllm.txt || {
  echo "setup_vllm: that failed. It needs torch 2.13.0+cpu, which usual package indexes do not have: let PIP_FIND_LINKS name a folder with that wheel, or UV_INDEX PyTorch's index for CPUs" >&2
  exit 1
}
echo "setup_vllm: run the tests with VF_TEST_VLLM_PYTHON=$venv/bin/python"
