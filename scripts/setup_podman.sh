#!/bin/sh
# Starts podman's service with a small image, for the tests of containers:  sh scripts/setup_podman.sh [start|stop]
# Its storage and socket lie in a folder of their own, so it meets no other podman; `stop` ends it and removes that.
# PYTHON names the interpreter that goes into the image, VF_PODMAN_FOLDER another folder, RUNTIME another runtime than
# runc. Exit status 3: this machine cannot have it.
set -eu
cd "$(dirname "$0")/.."
folder=${VF_PODMAN_FOLDER:-/tmp/vf-podman}
python=${PYTHON:-.venv/bin/python}
runtime=${RUNTIME:-runc}
socket=$folder/podman.sock
image=localhost/vf-test:1

not_here() {
  echo "setup_podman: $1. The tests of containers are skipped without it" >&2
  exit 3
}

engine() { # in a subshell, which it ends
  cd "$folder" # conmon leaves files where it is started
  CONTAINERS_CONF=$folder/containers.conf CONTAINERS_STORAGE_CONF=$folder/storage.conf exec podman --runtime "$runtime" "$@"
}

stop() {
  [ -d "$folder" ] || return 0
  [ -f "$folder/containers.conf" ] || { echo "setup_podman: $folder is not ours; name another" >&2; exit 2; }
  if [ -f "$folder/pid" ]; then
    (engine rm --all --force --time 0) >/dev/null 2>&1 || true
    kill "$(cat "$folder/pid")" 2>/dev/null || true
    while kill -0 "$(cat "$folder/pid")" 2>/dev/null; do sleep 0.1; done
  fi
  tries=0
  until rm -rf "$folder" 2>/dev/null; do # podman still tidies up after its last containers
    tries=$((tries + 1))
    [ $tries -lt 30 ] || { echo "setup_podman: $folder cannot be removed" >&2; exit 1; }
    umount "$folder/root/overlay" 2>/dev/null || true
    sleep 0.2
  done
}

# What podman may rest on: a runtime that knows both versions of control groups, limits that a container without
# CAP_SYS_RESOURCE can set, no systemd. By default a process of podman's stays for 5 minutes after each program.
configure() {
  mkdir -p "$folder/root" "$folder/run"
  cat >"$folder/storage.conf" <<EOF
[storage]
driver = "$1"
graphroot = "$folder/root"
runroot = "$folder/run"
EOF
  cat >"$folder/containers.conf" <<EOF
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]
log_driver = "k8s-file"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
exit_command_delay = 2
EOF
}

works_with() {
  rm -rf "$folder/root" "$folder/run"
  configure "$1"
  (engine import --change "ENV PATH=/usr/local/bin:/usr/bin:/bin" "$folder/image.tar" "$image") >"$folder/log" 2>&1 &&
    (engine run --rm --network none "$image" true) >>"$folder/log" 2>&1
}

case ${1:-start} in
stop) stop; exit 0 ;;
start) stop ;;
*) echo "setup_podman: say start or stop" >&2; exit 2 ;;
esac
[ "$(uname -s)" = Linux ] || not_here "containers need Linux, this is $(uname -s)"
[ "$(id -u)" = 0 ] || not_here "this needs root"
if ! command -v podman >/dev/null || ! command -v "$runtime" >/dev/null; then
  command -v apt-get >/dev/null || not_here "podman and $runtime are not installed, and there is no apt-get to install them by"
  echo "setup_podman: installing podman and $runtime"
  { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends podman "$runtime"; } \
    >/dev/null 2>&1 || not_here "podman and $runtime could not be installed"
fi
mkdir -p "$folder"
: >"$folder/containers.conf"
"$python" scripts/container_image.py >"$folder/image.tar"
works_with overlay || works_with vfs || not_here "podman does not run here: $(tail -n 1 "$folder/log")"
rm "$folder/image.tar"
engine system service --time 0 "unix://$socket" >"$folder/log" 2>&1 &
echo $! >"$folder/pid"
tries=0
until [ -S "$socket" ]; do
  tries=$((tries + 1))
  [ $tries -lt 50 ] || not_here "podman's service did not start: $(tail -n 1 "$folder/log")"
  sleep 0.2
done
echo "setup_podman: run the tests with VF_TEST_CONTAINER_HOST=unix://$socket; end it by: sh scripts/setup_podman.sh stop"
