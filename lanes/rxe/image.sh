#!/bin/bash
# Make what a guest boots from out of what fetch.sh cached:
#   vmlinux    the kernel's ELF image: QEMU enters it directly (PVH), so that no
#              guest spends seconds on decompressing it under emulation
#   base.cpio  the initramfs: busybox, modules, libibverbs with its rxe provider
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/common.sh"

modules=(virtio_pci virtio_console virtio_net dummy sch_netem crc32_generic rdma_rxe)
tools=(bin/dash bin/ip sbin/tc usr/bin/rdma)

want=$(cat "$CACHE/fetched" "$here/image.sh" "$here/init.sh" "$BUSYBOX" | sha256sum)
[ "$(cat "$CACHE/built" 2>/dev/null)" != "$want" ] || exit 0
tmp=$(mktemp -d "$CACHE/image.XXXXXX")
trap 'rm -rf "$tmp"' EXIT

# A bzImage's header says where the compressed image lies: setup_sects at 497,
# payload_offset and payload_length at 584 and 588; xz's last four bytes are not
# part of its stream.
bz=$(echo "$CACHE"/kernel/boot/vmlinuz-*)
field() { od -An -t "u$2" -j "$1" -N "$2" "$bz" | tr -d ' '; }
setup=$(field 497 1)
dd if="$bz" bs=64K iflag=skip_bytes,count_bytes status=none \
	skip=$((((setup ? setup : 4) + 1) * 512 + $(field 584 4))) count=$(($(field 588 4) - 4)) |
	xz -dc >"$tmp/vmlinux" || die "cannot unpack $bz"

root=$tmp/root lib=usr/lib/x86_64-linux-gnu
mkdir -p "$root"/{dev,etc/libibverbs.d,out,proc,root,run,sys,tmp,job} \
	"$root"/usr/{bin,lib/modules,lib64} "$root/$lib/libibverbs"
ln -s usr/bin "$root/bin"
ln -s usr/bin "$root/sbin"
ln -s usr/lib "$root/lib"
ln -s usr/lib64 "$root/lib64"
echo 'root:x:0:0:root:/root:/bin/sh' >"$root/etc/passwd"
echo 'root:x:0:' >"$root/etc/group"
printf '%s\n' '127.0.0.1 localhost' '192.0.2.1 node0' '192.0.2.2 node1' >"$root/etc/hosts"
install -m 755 "$here/init.sh" "$root/init"

# Modules in load order: each after what it depends on.
moddir=$(echo "$CACHE"/kernel/lib/modules/*)
"$BUSYBOX" depmod -b "$CACHE/kernel" "${moddir##*/}"
declare -A seen=()
add_module() { # a path as in modules.dep
	[ -z "${seen[$1]:-}" ] || return 0
	seen[$1]=1
	local dep
	for dep in $(sed -n "s|^$1:||p" "$moddir/modules.dep"); do add_module "$dep"; done
	cp "$moddir/$1" "$root/lib/modules/"
	echo "${1##*/}" >>"$root/lib/modules/order"
}
for name in "${modules[@]}"; do
	path=$(sed -n "s|^\([^:]*/$name\.ko\):.*|\1|p" "$moddir/modules.dep")
	[ -n "$path" ] || die "$(cat "$CACHE/fetched") has no module $name"
	add_module "$path"
done

cp "$BUSYBOX" "$root/bin/busybox"
for applet in $("$BUSYBOX" --list); do
	[ "$applet" = busybox ] || ln -s busybox "$root/bin/$applet"
done
for tool in "${tools[@]}"; do
	rm -f "$root/bin/${tool##*/}"
	cp "$CACHE/sysroot/$tool" "$root/bin/"
done
ln -sf dash "$root/bin/sh" # busybox's shell prefers its own applets to the tools
for dir in lib usr/lib; do
	find "$CACHE/sysroot/$dir/x86_64-linux-gnu" -maxdepth 1 \
		-name '*.so.*' ! -name '*.so.*.*' -exec cp -L -t "$root/$lib/" {} +
done
cp -P "$CACHE"/sysroot/lib64/* "$root/lib64/"
cp "$CACHE/sysroot/etc/libibverbs.d/rxe.driver" "$root/etc/libibverbs.d/"
cp "$CACHE/sysroot/$lib/libibverbs/"librxe-* "$root/$lib/libibverbs/"

(cd "$root" && find . | "$BUSYBOX" cpio -o -H newc -R 0:0 2>/dev/null) >"$tmp/base.cpio"
mv "$tmp/vmlinux" "$tmp/base.cpio" "$CACHE/"
echo "$want" >"$CACHE/built"
