# shellcheck shell=dash
# What `make test-rdma` runs in one guest; the argument is the length of the
# stress. Every step that fails ends it.
set -eu
. ./pair.sh

step verbs
verbs.test
step provider, worlds of one process
rdma.test -test.timeout 100s -test.skip 'Suites|Dies'
step suites between two processes
pair suites rdma.test -test.timeout 100s -test.run 'TestSuites|TestPutSignalIsOnePost'
step queues of one entry
export GOSHMEM_RDMA_SQ_DEPTH=1 GOSHMEM_RDMA_CQ_DEPTH=1
pair depth rdma.test -test.timeout 60s -test.run 'TestSuites/.*/(put_|get_|integers|fence|quiet_covers)'
unset GOSHMEM_RDMA_SQ_DEPTH GOSHMEM_RDMA_CQ_DEPTH
step order
export GOSHMEM_TEST_STRESS="$1"
pair order rdma.test -test.v -test.timeout 150s -test.run TestStress
step a PE killed
export GOSHMEM_TEST_DEATH=process
pair death rdma.test -test.v -test.timeout 60s -test.run TestPeerDies
export GOSHMEM_TEST_DEATH=
step dispatch and combine
GOSHMEM_PATH=rdma goshmem run -n 2 moe
step done
