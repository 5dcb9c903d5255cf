#!/bin/sh
# Pins all dependencies anew, with hashes and for every supported Python, in requirements/.
set -eu
cd "$(dirname "$0")/.."
pin() {
  out=$1; shift
  .venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
    --custom-compile-command "sh scripts/pin.sh" "$@" --output-file "$out"
}
pin requirements/local.txt pyproject.toml --extra local
pin requirements/test.txt pyproject.toml --extra language --extra local --extra gym --extra hub --extra hub-postgres --extra hub-s3 --extra mcp --extra reasoning-gym --extra sandbox --extra textarena --group dev --constraint requirements/local.txt
pin requirements/browser.txt --group browser --constraint requirements/test.txt
pin requirements/s3.txt --group s3
pin requirements/ray.txt pyproject.toml --extra ray --constraint requirements/test.txt
# Torch is for whoever installs it to choose: for GPUs, or for CPUs by scripts/setup_train.sh.
pin requirements/train.txt pyproject.toml --extra train --constraint requirements/test.txt --override requirements/train-override.txt --no-emit-package torch --no-emit-find-links
pin deploy/hub/requirements.txt pyproject.toml --extra hub --extra hub-postgres --extra hub-s3 --extra sandbox --constraint requirements/test.txt
pin requirements/schemathesis.txt --group schemathesis
for group in trl tokenizers contracts; do # see there
  pin requirements/$group.txt --group $group --no-deps --constraint requirements/test.txt
done
