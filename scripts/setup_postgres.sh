#!/bin/sh
# Starts a PostgreSQL of its own for the hub's tests:  sh scripts/setup_postgres.sh [start|stop]
# Data and socket lie in a folder of their own and it listens on 127.0.0.1, at a free port; `stop` ends it and removes
# them. VF_POSTGRES_FOLDER names another folder. Exit status 3: this machine cannot have it.
set -eu
folder=${VF_POSTGRES_FOLDER:-/tmp/vf-postgres}

not_here() {
  echo "setup_postgres: $1. The hub's tests on PostgreSQL are skipped without it" >&2
  exit 3
}

programs() { ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -1; }

# The server refuses to run as root.
as_owner() { if [ "$(id -u)" = 0 ]; then runuser -u postgres -- "$@"; else "$@"; fi; }

stop() {
  [ -d "$folder" ] || return 0
  [ -f "$folder/vf" ] || { echo "setup_postgres: $folder is not ours; name another" >&2; exit 2; }
  if [ -f "$folder/data/postmaster.pid" ]; then as_owner "$(programs)/pg_ctl" -D "$folder/data" -m immediate stop >/dev/null 2>&1 || true; fi
  rm -rf "$folder"
}

case ${1:-start} in
stop) stop; exit 0 ;;
start) stop ;;
*) echo "setup_postgres: say start or stop" >&2; exit 2 ;;
esac
if [ -z "$(programs)" ]; then
  [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || not_here "PostgreSQL is not installed, and installing it needs root and apt-get"
  echo "setup_postgres: installing PostgreSQL"
  mkdir -p /etc/postgresql-common
  echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.conf # no server but ours
  { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends postgresql; } \
    >/dev/null 2>&1 || not_here "PostgreSQL could not be installed"
fi
mkdir -p "$folder"
touch "$folder/vf"
[ "$(id -u)" != 0 ] || chown -R postgres "$folder"
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
cd "$folder"
as_owner "$(programs)/initdb" -D "$folder/data" -U postgres -A trust -E UTF8 --locale=C.UTF-8 >"$folder/log" 2>&1 ||
  not_here "initdb failed: $(tail -n 1 "$folder/log")"
# Nothing in it outlives the tests, so it need not wait for the disk.
as_owner "$(programs)/pg_ctl" -D "$folder/data" -l "$folder/data/server.log" -w \
  -o "-p $port -c listen_addresses=127.0.0.1 -c unix_socket_directories=$folder -c fsync=off -c full_page_writes=off" \
  start >>"$folder/log" 2>&1 || not_here "the server did not start: $(tail -n 1 "$folder/data/server.log")"
echo "postgresql://postgres@127.0.0.1:$port/postgres" >"$folder/url"
echo "setup_postgres: run the tests with VF_TEST_DATABASE_URL=$(cat "$folder/url"); end it by: sh scripts/setup_postgres.sh stop"
