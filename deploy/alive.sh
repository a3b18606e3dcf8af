#!/bin/sh
# A probe for processes without a door: `alive.sh NAME SECONDS` fails when NAME has given no sign of life for so long.
# The process touches VAR/alive/NAME (controlplane/common/alive.py).
touched=$(stat -c %Y "${VAR:-var}/alive/$1") || exit 1
[ $(($(date +%s) - touched)) -le "$2" ]
