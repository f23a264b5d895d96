#!/bin/busybox sh
# shellcheck shell=dash
# PID 1 of a guest: bring rxe0 up, run the command, hand over its output and exit
# status. virtio ports: 1 output, 2 exit status, 3 a tar of /out.
export PATH=/bin HOME=/root
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir /dev/shm
mount -t tmpfs tmpfs /dev/shm
while read -r module; do insmod "/lib/modules/$module"; done </lib/modules/order
hostname "node$NODE_RANK"
ulimit -l unlimited

# One node has rxe0 on an interface that leads nowhere: rxe loops back what its
# processes send each other. Two nodes have it on the wire between them.
dev=eth0
[ "$NODE_COUNT" = 2 ] || dev=dummy0
ip link set lo up
ip link set "$dev" mtu 4500 up # RoCE's largest MTU is 4096
ip addr add "192.0.2.$((NODE_RANK + 1))/24" dev "$dev"
rdma link add rxe0 type rxe netdev "$dev" || poweroff -f

# Begin together.
for node in $(seq "$NODE_COUNT"); do
	tries=100
	until ping -c 1 -W 1 "192.0.2.$node" >/dev/null 2>&1; do
		tries=$((tries - 1))
		[ "$tries" -gt 0 ] || poweroff -f
		sleep 0.1
	done
done
echo "rxe: up after $(cut -d' ' -f1 /proc/uptime) s"

cd /job || poweroff -f
PATH=/job:/bin /bin/sh /command </dev/null >/dev/vport0p1 2>&1
status=$?
tar -cf /dev/vport0p3 -C /out .
echo "$status" >/dev/vport0p2
poweroff -f
