# shellcheck shell=dash
# Sourced in a guest by one.sh and two.sh.

step() { echo "== $*, $(cut -d' ' -f1 /proc/uptime) s"; }

# pair NAME COMMAND...: this guest's part of a test of two processes that are one
# PE each of every world; with one guest both. They must end well, but for the
# second where it is to die.
pair() {
	export GOSHMEM_TEST_SIZE=2
	if [ "$NODE_COUNT" = 2 ]; then
		PORT=$((PORT + 500))
		export GOSHMEM_TEST_MEET="192.0.2.1:$PORT" GOSHMEM_TEST_RANK="$NODE_RANK"
		shift
		"$@" || [ "$NODE_RANK$GOSHMEM_TEST_DEATH" = 1process ] || exit 1
		return
	fi
	export GOSHMEM_TEST_MEET="unix:@$1"
	shift
	GOSHMEM_TEST_RANK=1 "$@" >/tmp/other 2>&1 &
	other=$!
	GOSHMEM_TEST_RANK=0 "$@" || { kill $other; cat /tmp/other; exit 1; }
	wait $other || [ -n "$GOSHMEM_TEST_DEATH" ] || { cat /tmp/other; exit 1; }
}

PORT=20000 GOSHMEM_TEST_DEATH=
