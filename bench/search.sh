#!/bin/sh
# What the search does and costs on every case and model: bench/search.py, on a built einnet.
cd "$(dirname "$0")/.." || exit 5
LC_ALL=C
export LC_ALL
make -s all && exec python3 bench/search.py "$@"
