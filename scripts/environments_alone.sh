#!/bin/sh
# Each environment here alone in a new virtual environment, from wheels: it installs with what it declares and no more,
# and its own right answers are paid.  sh scripts/environments_alone.sh [NAME…]
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
uv=${UV:-$root/.venv/bin/uv}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$uv" build --quiet --wheel --out-dir "$work" "$root"
failed=
for folder in "$root"/environments/*/; do
  module=$(basename "$folder")
  name=$(printf %s "$module" | tr _ -)
  [ -f "$folder/pyproject.toml" ] || continue
  case " $* " in "  " | *" $name "*) ;; *) continue ;; esac
  "$uv" venv --quiet --clear --python "${PYTHON:-$root/.venv/bin/python}" "$work/venv"
  mkdir -p "$work/build" "$work/run"
  cp -r "$folder" "$work/build/$module"
  "$uv" pip install --quiet --python "$work/venv/bin/python" "$work"/verifiers-*.whl "$work/build/$module"
  if (cd "$work/run" && HF_HUB_OFFLINE=1 "$work/venv/bin/vf-eval" "$name" -m reference -n 2 -r 1 -A) >"$work/log" 2>&1; then
    printf '%s: %s\n' "$name" "$(grep '^reward  ' "$work/log")"
  else
    failed="$failed $name"
    cat "$work/log" >&2
  fi
done
[ -z "$failed" ] || { echo "environments_alone: not right alone:$failed" >&2; exit 1; }
