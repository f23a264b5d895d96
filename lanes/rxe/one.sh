# shellcheck shell=dash
# What `make test-rdma` runs in one guest; the argument is the length of the stress.
. ./pair.sh

step "verbs" verbs.test
step "provider, worlds of one process" rdma.test -test.timeout 100s -test.skip 'Suites|Dies'
pair "suites between two processes" rdma.test -test.timeout 200s -test.run 'TestSuites|TestPutSignalIsOnePost|TestMixedAdds|TestBetweenHosts'
export GOSHMEM_RDMA_SQ_DEPTH=1 GOSHMEM_RDMA_CQ_DEPTH=1
pair "queues of one entry" rdma.test -test.timeout 60s -test.run 'TestSuites/.*/(put_signal$|put_get|get_sees|integers|fence|quiet_covers)'
unset GOSHMEM_RDMA_SQ_DEPTH GOSHMEM_RDMA_CQ_DEPTH
export GOSHMEM_TEST_STRESS="$1"
pair "order" rdma.test -test.v -test.timeout 350s -test.run TestStress
export GOSHMEM_TEST_DEATH=process
pair "a PE killed" rdma.test -test.v -test.timeout 60s -test.run TestPeerDies
export GOSHMEM_TEST_DEATH=
export GOSHMEM_TEST_NET=rdma
step "AMOs of the owner, its host and the adapter" amo.test -test.timeout 60s -test.run 'TestLinearizable/mixed|TestMixedAdds'
step "collectives" coll.test -test.short -test.timeout 100s -test.run 'TestAllToAllV$|TestLoss$|TestGoingOn|TestMessages|TestReceiveFrom|TestSendBoth|TestStartedBarrier'
step "moe" moe.test -test.short -test.timeout 60s \
	-test.run 'TestOneRank|TestBiasByToken|TestInPlace|TestInFlight|TestCached|TestRandomCalls$|TestDeadline$|TestLostPE|TestStaleHandle'
step "dispatch and combine" env GOSHMEM_PATH=rdma goshmem run -n 2 moe -tokens 64 -hidden 256 -iters 2 -heap 67108864
finish
