#!/bin/sh
grep -qx hello /app/greeting.txt && echo "{\"reward\": 1.0}" > /logs/verifier/reward.json
