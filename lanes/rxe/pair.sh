# shellcheck shell=dash
# Sourced in a guest by one.sh and two.sh.

failed= PORT=20000
export GOSHMEM_TEST_SIZE=2 GOSHMEM_TEST_MEET= GOSHMEM_TEST_DEATH=

# step TEXT COMMAND...: what fails is told at the end too, by finish.
step() {
	text=$1
	shift
	echo "== $text, at $(cut -d' ' -f1 /proc/uptime) s"
	"$@" || failed="$failed; $text"
}

finish() {
	echo "== done at $(cut -d' ' -f1 /proc/uptime) s${failed:+, FAILED$failed}"
	[ -z "$failed" ]
}

# pair TEXT COMMAND...: a test of two processes that are one PE each of every
# world; with one guest both are here, with two one in each. They must end well, but
# for PE 1 where it is to die.
pair() {
	text=$1
	shift
	PORT=$((PORT + 500))
	export GOSHMEM_TEST_MEET="unix:@goshmem-$PORT"
	if [ "$NODE_COUNT" = 2 ]; then
		export GOSHMEM_TEST_MEET="192.0.2.1:$PORT" GOSHMEM_TEST_RANK="$NODE_RANK"
		step "$text" mine "$@"
	else
		step "$text" both "$@"
	fi
	export GOSHMEM_TEST_MEET=
}

mine() { "$@" || [ "$NODE_RANK$GOSHMEM_TEST_DEATH" = 1process ]; }

both() {
	GOSHMEM_TEST_RANK=1 "$@" >/tmp/other 2>&1 &
	other=$! bad=0
	GOSHMEM_TEST_RANK=0 "$@" || { bad=1; kill $other; }
	wait $other || [ -n "$GOSHMEM_TEST_DEATH" ] || bad=1
	[ $bad = 0 ] || sed 's/^/PE 1| /' /tmp/other
	return $bad
}
