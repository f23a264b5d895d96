# shellcheck shell=dash
# What `make test-rdma` runs in two guests, one PE in each; the argument is the
# length of the stress. At last node 1 goes down.
. ./pair.sh

# An address to which node 0 has no route.
export GOSHMEM_TEST_LONELY=198.51.100.2
[ "$NODE_RANK" = 0 ] || ip addr add $GOSHMEM_TEST_LONELY/24 dev eth0

pair "suites" rdma.test -test.timeout 180s -test.run 'TestSuites/.*/(put_sizes|put_signal$|get_sees|iput|notify$|fence|quiet_covers|amo_and|integers|floats$|nbi|two_contexts|barrier_holds)|TestPutSignalIsOnePost|TestMixedAdds|TestBetweenHosts|TestWrongGID'
step "dispatch and combine" env GOSHMEM_RANK="$NODE_RANK" GOSHMEM_SIZE=2 GOSHMEM_RENDEZVOUS=192.0.2.1:19000 GOSHMEM_SECRET=5ec3e7 GOSHMEM_PATH=rdma \
	moe -tokens 64 -hidden 256 -iters 2 -heap 67108864
export GOSHMEM_TEST_STRESS="$1"
pair "order" rdma.test -test.v -test.timeout 60s -test.run TestStress
export GOSHMEM_TEST_STRESS=$(($1 / 5)) GOSHMEM_RDMA_TIMEOUT=16
tc qdisc add dev eth0 root netem loss 2%
pair "order under loss" rdma.test -test.v -test.timeout 60s -test.run TestStress
tc qdisc change dev eth0 root netem delay 1ms reorder 25%
pair "order under reordering" rdma.test -test.v -test.timeout 60s -test.run TestStress
tc qdisc del dev eth0 root
unset GOSHMEM_RDMA_TIMEOUT
export GOSHMEM_TEST_DEATH=process
pair "a PE killed" rdma.test -test.v -test.timeout 60s -test.run TestPeerDies
[ "$NODE_RANK" = 0 ] || [ -z "$failed" ] || finish || exit 1
export GOSHMEM_TEST_DEATH=node
pair "a node powered off" rdma.test -test.v -test.timeout 60s -test.run TestPeerDies
finish
