#!/bin/sh
mkdir -p /app && echo hello > /app/greeting.txt
