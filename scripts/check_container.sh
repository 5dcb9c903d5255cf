#!/bin/sh
# Builds the hub's image with podman and tests what its page promises:  sh scripts/check_container.sh
# No registry of images is asked: under the name of the base image stands a Debian that mmdebstrap makes, with Debian's
# Python of the same version. Storage lies in a folder of its own, which is removed in the end; KEEP=1 leaves it.
# VF_CONTAINER_FOLDER names another folder. Exit status 3: this machine cannot have it.
set -eu
cd "$(dirname "$0")/.."
folder=${VF_CONTAINER_FOLDER:-/tmp/vf-container}
base=docker.io/library/python:3.13-slim

not_here() {
  echo "check_container: $1. The hub's image is not checked without it" >&2
  exit 3
}

tidy_up() {
  [ -z "${KEEP:-}" ] || { echo "check_container: left in $folder"; return 0; }
  podman rm --all --force --time 0 >/dev/null 2>&1 || true
  tries=0
  until rm -rf "$folder" 2>/dev/null; do # podman still tidies up after its last containers
    tries=$((tries + 1))
    [ $tries -lt 30 ] || { echo "check_container: $folder cannot be removed" >&2; return 1; }
    umount "$folder/root/overlay" 2>/dev/null || true
    sleep 0.2
  done
}

[ "$(uname -s)" = Linux ] || not_here "containers need Linux, this is $(uname -s)"
[ "$(id -u)" = 0 ] || not_here "this needs root"
for program in podman runc mmdebstrap; do
  command -v $program >/dev/null && continue
  command -v apt-get >/dev/null || not_here "$program is not installed, and there is no apt-get to install it by"
  { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $program; } \
    >/dev/null 2>&1 || not_here "$program could not be installed"
done
[ ! -e "$folder" ] || [ -f "$folder/containers.conf" ] || { echo "check_container: $folder is not ours; name another" >&2; exit 2; }
mkdir -p "$folder/root" "$folder/run"
export CONTAINERS_CONF="$folder/containers.conf" CONTAINERS_STORAGE_CONF="$folder/storage.conf"
cat >"$CONTAINERS_STORAGE_CONF" <<END
[storage]
driver = "overlay"
graphroot = "$folder/root"
runroot = "$folder/run"
END
cat >"$CONTAINERS_CONF" <<END
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]
log_driver = "k8s-file"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
exit_command_delay = 2
runtime = "runc"
END
trap tidy_up EXIT
trap 'exit 130' INT TERM

if ! podman image exists $base; then
  echo "check_container: making $base from Debian's packages"
  mmdebstrap --quiet --variant=minbase --include=python3.13,python3-venv,python3-pip,ca-certificates \
    --customize-hook='for name in python python3; do ln -s /usr/bin/python3.13 "$1/usr/local/bin/$name"; done' \
    --customize-hook='ln -s /usr/bin/pip "$1/usr/local/bin/pip"; rm "$1/usr/lib/python3.13/EXTERNALLY-MANAGED"' \
    trixie "$folder/base.tar" >"$folder/log" 2>&1 || not_here "no Debian 13 can be had: $(tail -n 1 "$folder/log")"
  podman import --quiet --change 'ENV PATH=/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin' \
    "$folder/base.tar" $base >"$folder/log" 2>&1 || not_here "podman does not work here: $(tail -n 1 "$folder/log")"
  rm "$folder/base.tar"
fi
podman run --rm --network none $base true >"$folder/log" 2>&1 || not_here "podman runs nothing here: $(tail -n 1 "$folder/log")"

# What this machine trusts, the build trusts too: a company's own certificate, say. Nothing of it gets into the image.
echo "check_container: building the image"
echo "system-certs = true" >"$folder/uv.toml"
certificates=/etc/ssl/certs/ca-certificates.crt
podman build --quiet --format docker --network host --file deploy/hub/Containerfile --tag localhost/verifiers-hub \
  --volume "$folder/uv.toml:/etc/uv/uv.toml:ro" --volume "$certificates:$certificates:ro" . >"$folder/log" 2>&1 ||
  { tail -n 30 "$folder/log" >&2; exit 1; }

VF_TEST_HUB_IMAGE=localhost/verifiers-hub .venv/bin/python -m pytest -q tests/hub/test_container.py
