#!/bin/sh
# Make .venv hold exactly what is locked. `setup.sh run` leaves out what only developing needs.
# uv where it works; else venv and pip with hashes; else name the one package to install.
set -eu
cd "$(dirname "$0")/.."
wanted=${1:-run}
stamp=.venv/.muster-$wanted
[ "$wanted" = run ] && [ -e .venv/.muster-dev ] && stamp=.venv/.muster-dev
if [ -e "$stamp" ] && [ "$(cat "$stamp")" = "$(cksum <uv.lock)" ]; then
    exit 0
fi

with_uv() {
    uv --version >/dev/null 2>&1 || return 1
    echo "Setting up .venv with uv: downloads about 100 packages and compiles them, a minute or two the first time"
    # Inexact: running asks for less than developing and takes nothing away from it.
    # Compiled once here, not by each process that starts.
    if [ "$wanted" = dev ]; then
        uv sync --locked --quiet --compile-bytecode
    else
        uv sync --locked --quiet --compile-bytecode --no-dev --inexact
    fi
}

with_pip() {
    for python in python3.12 python3.11 python3 none; do
        "$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 13))' 2>/dev/null && break
    done
    if [ "$python" = none ]; then
        echo "Muster needs Python 3.11 or 3.12. Install one package: uv (it brings Python), or python3.11." >&2
        return 1
    fi
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        echo "Install one package: python3-venv (Debian, Ubuntu), or uv." >&2
        return 1
    fi
    echo "Setting up .venv with $python and pip: downloads about 100 packages, some minutes the first time"
    requirements=deploy/requirements.txt
    [ "$wanted" = dev ] && requirements=deploy/requirements-dev.txt
    "$python" -m venv .venv
    .venv/bin/pip install --quiet --compile --disable-pip-version-check --require-hashes --requirement "$requirements"
}

with_uv || with_pip
rm -f .venv/.muster-run .venv/.muster-dev
cksum <uv.lock >".venv/.muster-$wanted"
