#!/bin/sh
# Installs the peers that are missing, where that is possible (Debian, root). What
# stays missing is listed by the comparison.
want=
need() { command -v "$1" >/dev/null || want="$want $2"; }
need gcc gcc
need mpirun.openmpi openmpi-bin
need mpirun.mpich mpich
need mpicc.mpich libmpich-dev
need ucx_perftest ucx-utils
[ -e "/usr/lib/$(uname -m)-linux-gnu/openmpi/include/shmem.h" ] || want="$want libopenmpi-dev"
[ -z "$want" ] && exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
	echo "not installed, for want of root or apt-get:$want" >&2
	exit 0
fi
apt-get install -y --no-install-recommends $want >/dev/null ||
	{ apt-get update >/dev/null && apt-get install -y --no-install-recommends $want >/dev/null; } ||
	echo "not installed:$want" >&2
exit 0
