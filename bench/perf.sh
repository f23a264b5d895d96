#!/usr/bin/env bash
# Makes the report of this machine in docs/perf: report.md and report.html from JSON
# lines in build/perf, peers.txt, and repeat.txt, which tells how well medians repeat.
# Nothing else should run meanwhile.
# Usage: bench/perf.sh [all] [scale] [peers] [repeat] [report]; without a step, all
# of them. PERF_FLAGS go to goshmem bench all and scale, PEERS_FLAGS to the peers.
set -eu
cd "$(dirname "$0")/.."
tool=build/goshmem out=build/perf docs=docs/perf
mkdir -p $out

step() {
	case $1 in
	all) $tool bench all -json ${PERF_FLAGS:-} >$out/all.jsonl ;;
	scale) $tool bench scale -json ${PERF_FLAGS:-} >$out/scale.jsonl ;;
	peers)
		bench/peers/install.sh
		go run ./bench/peers -goshmem $tool -json $out/peers.jsonl ${PEERS_FLAGS:-} >$docs/peers.txt
		;;
	repeat)
		$tool bench all -repeat 3 -time 150ms ${PERF_FLAGS:-} >$out/repeat.txt
		sed -n '/^figure .*kept/,/repeat within/p' $out/repeat.txt >$docs/repeat.txt
		;;
	report)
		$tool bench report $out/*.jsonl -o $docs/report.html
		$tool bench report $out/*.jsonl >$docs/report.md
		;;
	*) echo "perf.sh: no step $1" >&2 && exit 2 ;;
	esac
}
[ $# -gt 0 ] || set -- all scale peers repeat report
for s; do
	echo "# $s, $(date +%T), load $(cut -d' ' -f1 /proc/loadavg)" >&2
	step "$s"
done
