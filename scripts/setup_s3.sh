#!/bin/sh
# Starts an S3 server (moto) for the hub's tests:  sh scripts/setup_s3.sh [start|stop]
# It has a virtual environment of its own, .venv-s3, because its pins fight with ours. It listens on 127.0.0.1, at a free
# port, keeps everything in memory and has the bucket `hub`. VF_S3_FOLDER names another folder for its log.
set -eu
cd "$(dirname "$0")/.."
folder=${VF_S3_FOLDER:-/tmp/vf-s3}

stop() {
  [ -d "$folder" ] || return 0
  [ -f "$folder/log" ] || { echo "setup_s3: $folder is not ours; name another" >&2; exit 2; }
  [ ! -f "$folder/pid" ] || kill "$(cat "$folder/pid")" 2>/dev/null || true
  rm -rf "$folder"
}

case ${1:-start} in
stop) stop; exit 0 ;;
start) stop ;;
*) echo "setup_s3: say start or stop" >&2; exit 2 ;;
esac
[ -x .venv-s3/bin/python ] || .venv/bin/python -m venv --without-pip .venv-s3
.venv/bin/uv pip install --quiet --python .venv-s3/bin/python -r requirements/s3.txt
mkdir -p "$folder"
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
.venv-s3/bin/moto_server -H 127.0.0.1 -p "$port" >"$folder/log" 2>&1 &
echo $! >"$folder/pid"
tries=0
until .venv/bin/python - "http://127.0.0.1:$port/hub" <<'PY' 2>/dev/null; do
import sys, urllib.request
urllib.request.urlopen(urllib.request.Request(sys.argv[1], method="PUT"), timeout=5)
PY
  tries=$((tries + 1))
  [ $tries -lt 60 ] || { echo "setup_s3: the server did not start: $(tail -n 1 "$folder/log")" >&2; exit 1; }
  sleep 0.5
done
echo "http://127.0.0.1:$port" >"$folder/url"
echo "setup_s3: run the tests with VF_TEST_S3_URL=$(cat "$folder/url"); end it by: sh scripts/setup_s3.sh stop"
