#!/bin/sh
[ "$(wc -l < /app/fruit.txt)" = 3 ] && echo 1 > /logs/verifier/reward.txt
