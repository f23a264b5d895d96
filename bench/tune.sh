#!/usr/bin/env bash
# What each option does to the figures it moves, as a table: the middle of three
# runs. Usage: bench/tune.sh [goshmem [time a figure]]
set -eu
tool=${1:-build/goshmem} time=${2:-200ms}

row() { # variable, "values", the figure's line, arguments of goshmem bench
	local var=$1 values=$2 line=$3 v
	shift 3
	for v in $values; do
		for _ in 1 2 3; do
			env "$var=$v" "$tool" bench "$@" -time "$time" | grep -E "$line" | awk '{print $7, $10, "| " $12}'
		done | sort -n | sed -n "2s#^#| $var=$v | ${GOSHMEM_NODES:+2 nodes: }$* | #p" | sed 's/$/ |/'
	done
}

echo "| option | program | p50 | x floor |"
echo "| --- | --- | ---: | ---: |"
row GOSHMEM_RING_CAPACITY "1 8 64 1024 16384" "^put +rate" put -sizes 8 -path proxy
row GOSHMEM_INLINE_MAX "4KiB 64KiB 256KiB 1MiB 64MiB" "^put +nbi-b" put -sizes 1MiB
row GOSHMEM_SPIN_TURNS "1 8 64 150 1000" "^put-signal +lat" put-signal -sizes 8
row GOSHMEM_SPIN_TURNS "1 2 8 64 1000" "^barrier +lat" barrier -n 8
row GOSHMEM_SLEEP_AFTER "1us 20us 200us 5ms" "^barrier +lat" barrier -n 8
row GOSHMEM_SLEEP_AFTER "1us 20us 200us 5ms" "^ring +lat" ring -n 8
export GOSHMEM_NODES=2
row GOSHMEM_WINDOW "1 4 16 64 256" "^put +rate" put -sizes 8
row GOSHMEM_WINDOW "1 4 16 64 256" "^put +nbi-b" put -sizes 1MiB
row GOSHMEM_BACKLOG "1 16 1024" "^put +rate" put -sizes 8
