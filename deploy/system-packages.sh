#!/bin/sh
# Install what the whole test suite drives: PostgreSQL, Redis, Chromium, Prometheus, kubectl. Only as root on Debian, and only what is
# missing; elsewhere the tests that need them skip and say so (with CI=true they fail).
set -eu
missing=
[ -n "$(ls -d /usr/lib/postgresql/*/bin/initdb 2>/dev/null)" ] || command -v initdb >/dev/null || missing="$missing postgresql"
command -v redis-server >/dev/null || missing="$missing redis-server"
command -v chromium >/dev/null || missing="$missing chromium"
command -v promtool >/dev/null || missing="$missing prometheus"
command -v kubectl >/dev/null || missing="$missing kubernetes-client"
[ -n "$missing" ] || exit 0
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "Not installed:$missing. The tests that need them will skip." >&2
    exit 0
fi
export DEBIAN_FRONTEND=noninteractive
for attempt in 1 2 3 4; do
    # shellcheck disable=SC2086  # a list of words on purpose
    if apt-get update -qq && apt-get install -y -qq --no-install-recommends $missing >/dev/null; then
        exit 0
    fi
    echo "Installing$missing failed (attempt $attempt); trying again" >&2
    sleep $((attempt * 3))
done
exit 1
