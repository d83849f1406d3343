#!/bin/sh
# Installs what the build and the tests need and this machine lacks: Debian 12 packages, and Python
# packages in .venv at the versions of tests/requirements.txt. Quiet when nothing is missing.
set -eu
cd "$(dirname "$0")/.."

packages='gcc g++ make libc6-dev clang libclang-rt-14-dev clang-format binutils diffutils locales
    libstb-dev libjsmn-dev libonnx-dev libonnx-testdata libprotobuf-c-dev protobuf-c-compiler
    libopenblas-dev python3 python3-venv'

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo > /dev/null; then
        sudo "$@"
    else
        echo "setup: neither root nor sudo: as root, run: $*" >&2
        return 1
    fi
}

missing=
for package in $packages; do
    status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2> /dev/null || true)
    [ "$status" = installed ] || missing="$missing $package"
done
if [ -n "$missing" ]; then
    echo "setup: installing Debian packages:$missing"
    # The lists may be old or not there at all; a failure shows at the installation.
    as_root apt-get -qq update || true
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install \
        $missing > /dev/null || {
        echo "setup: missing Debian packages:$missing" >&2
        exit 1
    }
fi

if ! cmp -s tests/requirements.txt .venv/requirements.txt; then
    echo "setup: installing Python packages in .venv:" $(cat tests/requirements.txt)
    { [ -x .venv/bin/python ] || python3 -m venv .venv; } &&
        .venv/bin/python -m pip -q --disable-pip-version-check install \
            -r tests/requirements.txt || {
        echo "setup: missing Python packages:" $(cat tests/requirements.txt) >&2
        exit 1
    }
    cp tests/requirements.txt .venv/requirements.txt
fi

if [ "${1:-}" != --quiet ]; then
    echo "setup: everything is there"
    command -v nvcc > /dev/null ||
        echo "setup: nvcc is not on PATH: tests that compile CUDA or run it on the CPU are skipped"
fi
