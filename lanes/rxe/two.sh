# shellcheck shell=dash
# What `make test-rdma` runs in two guests, one PE in each; the argument is the
# length of the stress. The last step powers node 1 off.
set -eu
. ./pair.sh

step suites
pair suites rdma.test -test.timeout 100s -test.run 'TestSuites/.*/(put|get|iput|signal|notify|fence|quiet|amo|integers|floats|nbi|none_is_lost|barrier|two_contexts)|TestPutSignalIsOnePost'
step order
export GOSHMEM_TEST_STRESS="$1"
pair order rdma.test -test.v -test.timeout 60s -test.run TestStress
export GOSHMEM_TEST_STRESS=$(($1 / 5)) GOSHMEM_RDMA_TIMEOUT=13
step order with 2 % loss
tc qdisc add dev eth0 root netem loss 2%
pair loss rdma.test -test.v -test.timeout 60s -test.run TestStress
step order with a quarter of the packets reordered
tc qdisc change dev eth0 root netem delay 1ms reorder 25%
pair reorder rdma.test -test.v -test.timeout 60s -test.run TestStress
tc qdisc del dev eth0 root
unset GOSHMEM_RDMA_TIMEOUT
step a PE killed
export GOSHMEM_TEST_DEATH=process
pair death rdma.test -test.v -test.timeout 60s -test.run TestPeerDies
step a node powered off
export GOSHMEM_TEST_DEATH=node
pair off rdma.test -test.v -test.timeout 60s -test.run TestPeerDies
step done
