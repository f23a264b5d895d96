#!/bin/bash
# Boot one or two guests with a soft-RoCE device and run a command in them.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/common.sh"

usage() {
	cat >&2 <<'EOF'
usage: run.sh [OPTION...] [FILE...] -- COMMAND [ARGUMENT...]

Copies each FILE (or directory) into the guest's /job and runs COMMAND there. The
exit status is COMMAND's (with two guests, the first that is not 0); 124 if time
ran out, 125 if the lane could not start or a guest did not report.

  -n N     guests, 1 (default) or 2; with 2, output lines are marked with the rank
  -t S     seconds, boot included (default 200)
  -m MB    memory of a guest (default 768)
  -c N     CPUs of a guest (default: the host's, at most 2; with two guests 1)
  -o DIR   fetch what COMMAND left in /out; with two guests, DIR/0 and DIR/1
EOF
	exit 125
}

vms=1 limit=200 memory=768 cpus='' out='' files=()
while [ $# -gt 0 ]; do
	case $1 in
	-n) vms=$2; shift 2 ;;
	-t) limit=$2; shift 2 ;;
	-m) memory=$2; shift 2 ;;
	-c) cpus=$2; shift 2 ;;
	-o) out=$2; shift 2 ;;
	--) shift; break ;;
	-*) usage ;;
	*) files+=("$1"); shift ;;
	esac
done
[ $# -gt 0 ] || usage
case $vms in
1) : "${cpus:=$(($(nproc) < 2 ? 1 : 2))}" ;;
2) : "${cpus:=1}" ;;
*) usage ;;
esac

mkdir -p "$CACHE"
(
	flock 9 # of runs side by side, one fills the cache
	"$here/fetch.sh" && "$here/image.sh"
) 9>"$CACHE/lock" || die "cannot make the guest's image"

# Hardware virtualisation where the CPU announces it, else emulation.
accel=${GOSHMEM_RXE_ACCEL:-}
if [ -z "$accel" ]; then
	accel=tcg
	if [ -w /dev/kvm ] && grep -qwE 'vmx|svm' /proc/cpuinfo; then accel=kvm; fi
fi
case $accel in
kvm) machine=(-accel kvm -cpu host) extra='' ;;
tcg) # The guest counts the host's ticks; it would measure them wrong on a busy host.
	machine=(-accel 'tcg,thread=multi' -cpu max)
	extra="tsc=reliable $(awk '/^bogomips/ { printf "tsc_early_khz=%d", $3 * 500; exit }' /proc/cpuinfo)"
	;;
*) die "GOSHMEM_RXE_ACCEL is kvm or tcg" ;;
esac

tmp=$(mktemp -d)
pids=()
cleanup() {
	for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
	rm -rf "$tmp"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

# The initramfs: the common one, then this run's files.
mkdir -p "$tmp/more/job"
[ "${#files[@]}" -eq 0 ] || cp -rL -t "$tmp/more/job" "${files[@]}" || die "cannot copy the files"
printf '%q ' "$@" >"$tmp/more/command"
(cd "$tmp/more" && find . | "$BUSYBOX" cpio -o -H newc -R 0:0 2>/dev/null) |
	cat "$CACHE/base.cpio" - >"$tmp/initrd"
rm -rf "$tmp/more"

guest() { # rank: run that guest to its end
	local net=() k
	if [ "$vms" = 2 ]; then # the wire is a pair of Unix sockets
		net=(
			-netdev "dgram,id=wire,local.type=unix,local.path=$tmp/wire$1,remote.type=unix,remote.path=$tmp/wire$((1 - $1))"
			-device "virtio-net-pci,netdev=wire,mac=52:54:00:00:00:0$1,romfile="
		)
	fi
	local ports=(-device 'virtio-serial-pci,ioeventfd=off')
	for k in 1 2 3; do
		ports+=(-chardev "file,id=port$k,path=$tmp/port$k.$1" -device "virtserialport,chardev=port$k,nr=$k")
	done
	exec timeout -k 5 "$limit" qemu-system-x86_64 "${machine[@]}" \
		-M q35 -m "$memory" -smp "$cpus" -nodefaults -display none -no-reboot \
		-kernel "$CACHE/vmlinux" -initrd "$tmp/initrd" -serial "file:$tmp/console$1" \
		-append "console=ttyS0 quiet panic=-1 mitigations=off cryptomgr.notests $extra NODE_RANK=$1 NODE_COUNT=$vms" \
		"${ports[@]}" "${net[@]}" </dev/null
}

# The guest's output is a plain file, complete before the guest's write returns:
# nothing is lost at power-off.
began=$(date +%s) readers=()
for ((rank = 0; rank < vms; rank++)); do
	: >"$tmp/port1.$rank"
	guest "$rank" &
	pids+=($!)
	show=(cat)
	[ "$vms" = 1 ] || show=(stdbuf -oL sed "s/^/$rank| /")
	tail -c +1 -s 0.1 -f --pid="${pids[rank]}" "$tmp/port1.$rank" | "${show[@]}" &
	readers+=($!)
done

result=0
for ((rank = 0; rank < vms; rank++)); do
	ended=0
	wait "${pids[rank]}" || ended=$?
	if [ "$ended" = 124 ] || [ "$ended" = 137 ]; then
		echo "rxe: node $rank: out of time ($limit s); the end of its console:" >&2
		status=124
	elif [ -s "$tmp/port2.$rank" ]; then
		status=$(cat "$tmp/port2.$rank")
	else
		echo "rxe: node $rank did not report; the end of its console:" >&2
		status=125
	fi
	case $status in
	124 | 125) tail -n 40 "$tmp/console$rank" >&2 || true ;;
	*) echo "rxe: node $rank: exit status $status, $(grep -o 'up after [0-9.]* s' "$tmp/console$rank" || true)," \
		"$(($(date +%s) - began)) s in all ($accel)" >&2 ;;
	esac
	[ "$result" != 0 ] || result=$status
	if [ -n "$out" ] && [ -s "$tmp/port3.$rank" ]; then
		dir=$out
		[ "$vms" = 1 ] || dir=$out/$rank
		mkdir -p "$dir"
		tar -xf "$tmp/port3.$rank" -C "$dir"
	fi
done
pids=()
wait "${readers[@]}" || true
exit "$result"
