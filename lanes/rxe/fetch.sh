#!/bin/bash
# Fill the cache: a stock Debian kernel, and the packages whose files go into the
# guest. They are downloaded and unpacked, never installed; the host gains QEMU,
# a static busybox and xz, and only if they are missing. Needs root for that alone.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

packages=(
	dash libc6 libgcc-s1
	libibverbs1 ibverbs-providers libnl-3-200 libnl-route-3-200
	iproute2 libmnl0 libbsd0 libmd0 libcap2 libelf1 libbpf1 zlib1g libxtables12
	libibverbs-dev # to compile against, not for the guest
)

missing=()
need() { command -v "$1" >/dev/null || missing+=("$2"); }
need qemu-system-x86_64 qemu-system-x86
need xz xz-utils
[ -x "$BUSYBOX" ] || missing+=(busybox-static)
if [ "${#missing[@]}" -gt 0 ]; then
	[ "$(id -u)" = 0 ] || die "not on this host, and only root can install it: ${missing[*]}"
	echo "rxe: installing ${missing[*]}" >&2
	apt-get update -qq || die "apt-get update failed"
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2 ||
		die "cannot install ${missing[*]}"
fi
[ ! -e "$CACHE/fetched" ] || exit 0

# The metapackage names the newest kernel.
newest() {
	apt-cache depends linux-image-amd64 2>/dev/null |
		sed -n 's/^ *Depends: \(linux-image-[0-9].*\)$/\1/p' | head -n 1
}
kernel=$(newest || true)
if [ -z "$kernel" ]; then
	apt-get update -qq || die "apt-get update failed"
	kernel=$(newest || true)
fi
[ -n "$kernel" ] || die "apt knows no linux-image-amd64"

echo "rxe: fetching $kernel and ${#packages[@]} packages" >&2
mkdir -p "$CACHE"
tmp=$(mktemp -d "$CACHE/fetch.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
mkdir "$tmp/debs" "$tmp/kernel" "$tmp/sysroot"
cd "$tmp/debs"
download() { apt-get download -qq -o APT::Sandbox::User=root "$kernel" "${packages[@]}" >&2; }
download || { apt-get update -qq && download; } || die "apt-get download failed"
for deb in *.deb; do
	case $deb in
	linux-image-*) dpkg-deb -x "$deb" "$tmp/kernel" ;;
	*) dpkg-deb -x "$deb" "$tmp/sysroot" ;;
	esac
done
rm -rf "$CACHE/kernel" "$CACHE/sysroot" "$CACHE/built"
mv "$tmp/kernel" "$tmp/sysroot" "$CACHE/"
echo "$kernel" >"$CACHE/fetched"
