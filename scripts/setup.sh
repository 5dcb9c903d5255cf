#!/bin/sh
# Makes .venv with this checkout and its pinned dependencies in it:  sh scripts/setup.sh [local|test]
#   local   what an evaluation needs, with the model on this machine (default)
#   test    that, and what the tests need
# PYTHON and VENV name another interpreter and another folder.
set -eu
cd "$(dirname "$0")/.."
wanted=${1:-local}
python=${PYTHON:-python3}
venv=${VENV:-.venv}
requirements=requirements/$wanted.txt
[ -f "$requirements" ] || { echo "setup: no $requirements; say local or test" >&2; exit 2; }
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || {
  echo "setup: $python is $("$python" --version 2>&1 || echo missing); Python 3.11 or newer is needed (PYTHON=… names another)" >&2
  exit 3
}
if [ ! -x "$venv/bin/python" ]; then
  echo "setup: making $venv"
  "$python" -m venv "$venv" || {
    echo "setup: this Python cannot make virtual environments; on Debian and Ubuntu: apt install python3-venv" >&2
    exit 3
  }
fi
uv=$venv/bin/uv
if [ ! -x "$uv" ]; then
  echo "setup: fetching the installer (uv)"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check uv 2>&1 | grep -v "is ignored: it is neither" || [ -x "$uv" ]
fi
echo "setup: installing $requirements"
"$uv" pip install --quiet --python "$venv/bin/python" -r "$requirements"
"$uv" pip install --quiet --python "$venv/bin/python" --no-deps -e .
