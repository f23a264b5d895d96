# shellcheck shell=bash disable=SC2034
# Sourced by the lane's scripts.
CACHE=${GOSHMEM_RXE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/goshmem-rxe}
BUSYBOX=${GOSHMEM_RXE_BUSYBOX:-/bin/busybox}

die() {
	echo "rxe: $*" >&2
	exit 125
}
