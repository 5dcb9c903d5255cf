#!/bin/sh
wc -w < /app/notes.txt > /app/count.txt
