#!/bin/sh
# Runs the tests for GPUs that lie in build/gpu (make test-gpu-build), one after the
# other, each with a bound; one that fails stops none of the others. Logs go to
# $GPU_LOGS; GPU_SUITES names those wanted, all if unset. Where processes share a GPU they run under an MPS daemon of their own.
cd "$(dirname "$0")/../../build/gpu" || exit 1
for z in *.gz; do
	[ -e "$z" ] && gunzip -f "$z"
done
logs=${GPU_LOGS:-$PWD/logs}
mkdir -p "$logs"
export GOSHMEM_TEST_GPU=1 CUDA_DEVICE_MAX_CONNECTIONS=32 CUDA_MODULE_LOADING=EAGER
failed=0

run() { # name, seconds, command…
	name=$1 bound=$2
	shift 2
	case " ${GPU_SUITES:-$name} " in *" $name "*) ;; *) return ;; esac
	echo "== $name ($(date +%T))"
	if timeout -k 5 "$bound" "$@" >"$logs/$name.log" 2>&1; then
		echo "   ok, $(grep -c -e '--- PASS' "$logs/$name.log") passed"
		grep -h 'all rows right' "$logs/$name.log"
	else
		echo "   FAILED ($?)"
		failed=1
		grep -E -e '--- FAIL|panic:|Error:|pe [0-9]+:|rank [0-9]+|reported' "$logs/$name.log" | head -40
	fi
	# What is said where there is no GPU is not for here.
	grep -E -e '--- SKIP' "$logs/$name.log" | grep -v Absent && { echo "   skipped on a GPU"; failed=1; }
}

mps() { # a private daemon
	dir=$(mktemp -d) || return 1
	export CUDA_MPS_PIPE_DIRECTORY="$dir/pipe" CUDA_MPS_LOG_DIRECTORY="$dir/log"
	export CUDA_DEVICE_MAX_CONNECTIONS=8 # the clients of a server share what it has
	mkdir -p "$dir/pipe" "$dir/log"
	env -u CUDA_VISIBLE_DEVICES nvidia-cuda-mps-control -d # else clients would count the devices anew
	sleep 1
}

mps_end() {
	echo quit | timeout 30 nvidia-cuda-mps-control
	cp "$dir"/log/*.log "$logs/" 2>/dev/null
	rm -rf "$dir"
	unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
}

nvidia-smi --query-gpu=index,name,driver_version,memory.total --format=csv 2>&1
run cuda 100 ./cuda.test -test.v -test.run 'Test[^A]' -test.timeout 95s
run adaptor 100 ./cudadev.test -test.v -test.skip Emulated -test.timeout 95s
run operations 300 ./rma.test -test.v -test.run TestDevice -test.timeout 295s
run stress 150 env GOSHMEM_TEST_STRESS="${GPU_STRESS:-1000000}" ./rma.test -test.v -test.run 'TestDevice/cuda/vmm/pes2/device_stress' -test.timeout 145s
run kernels 120 ./nvlink.test -test.v -test.run TestGPU -test.timeout 115s
run example 60 env GOSHMEM_DEVICE_HEAP=16MiB ./goshmem run -n 2 ./gpuring
run moe 200 ./moe.test -test.v -test.run TestDevice -test.timeout 195s
run kill 100 ./pe.test -test.v -test.run TestDeviceKill -test.timeout 95s
if command -v nvidia-cuda-mps-control >/dev/null && [ -z "$CUDA_MPS_PIPE_DIRECTORY" ]; then
	mps
	run processes 150 ./pe.test -test.v -test.run TestDeviceProcesses -test.timeout 145s
	mps_end
else
	run processes 240 ./pe.test -test.v -test.run TestDeviceProcesses -test.timeout 235s
fi
exit $failed
