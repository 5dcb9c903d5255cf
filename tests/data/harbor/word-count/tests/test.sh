#!/bin/sh
if [ "$(cat /app/count.txt)" = "${EXPECTED:-6}" ]; then
  echo 1 > /logs/verifier/reward.txt
else
  echo 0 > /logs/verifier/reward.txt
fi
