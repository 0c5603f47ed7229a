#!/bin/sh
# fetch-systemd.sh DIR: leaves Debian's systemd, systemctl, a shell and what installs
# and removes files in DIR/systemd, with the libraries that they need. Nothing is
# installed.
set -eu
mkdir -p "$1"
cd "$1"
rm -rf unpacked-systemd
mkdir unpacked-systemd
cd unpacked-systemd
apt-get download -qq systemd libsystemd-shared dash coreutils \
	libacl1 libapparmor1 libattr1 libaudit1 libblkid1 libc6 libcap2 libcap-ng0 libcrypt1 \
	libgcrypt20 libgpg-error0 libip4tc2 libkmod2 liblz4-1 liblzma5 libmount1 \
	libpam0g libpcre2-8-0 libseccomp2 libselinux1 libssl3 libzstd1
for package in ./*.deb; do
	dpkg-deb -x "$package" .
done
mkdir kept
loader=lib64/ld-linux-x86-64.so.2
for program in lib/systemd/systemd bin/systemctl bin/dash usr/bin/install bin/rm; do
	"$loader" --library-path lib/x86_64-linux-gnu:usr/lib/x86_64-linux-gnu:usr/lib/x86_64-linux-gnu/systemd --list "$program" >list
	# Lines are "name => path (address)"; a library of the host's is one that no package above has.
	while read -r name arrow path rest; do
		case "$name $path" in
		linux-vdso* | /* | *ld-linux*) ;;
		*" /"* | *" not") echo "$program needs $name ($arrow $path $rest): add its package" >&2; exit 1 ;;
		*) cp -L "$path" "kept/$name" ;;
		esac
	done <list
	cp "$program" kept/
done
cp -L "$loader" kept/
cd ..
rm -rf systemd
mv unpacked-systemd/kept systemd
rm -rf unpacked-systemd
