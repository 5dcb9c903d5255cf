#!/bin/sh
printf "pear\napple\nfig\n" > /app/fruit.txt
