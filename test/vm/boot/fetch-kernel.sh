#!/bin/sh
# fetch-kernel.sh DIR MODULE...: leaves Debian's cloud kernel in DIR/vmlinuz and the
# modules as DIR/MODULE.ko. Nothing is installed.
set -eu
mkdir -p "$1"
cd "$1"
shift
package=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/.*Depends: \(linux-image-[^ ]*\)/\1/p' | head -n 1)
[ -n "$package" ] || { echo "apt knows no linux-image-cloud-amd64: run apt-get update" >&2; exit 1; }
rm -rf unpacked ./linux-image-*.deb
apt-get download -qq "$package"
dpkg-deb -x ./linux-image-*.deb unpacked
for module; do
	find unpacked -name "$module.ko" -exec mv {} . \;
done
mv unpacked/boot/vmlinuz-* vmlinuz
rm -rf unpacked ./linux-image-*.deb
