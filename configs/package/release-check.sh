#!/bin/bash
# Builds a release of a copy of this commit twice, with a tag that is never published, and
# compares the files.
set -euo pipefail
root=$(git rev-parse --show-toplevel)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
git clone -q --no-tags "file://$root" "$dir/first"
git -C "$dir/first" -c tag.gpgSign=false tag v0.0.0-test
cp -r "$dir/first" "$dir/second"
for copy in first second; do
	mkdir -p "$dir/$copy/bin"
	ln -s "$root/bin/tools" "$dir/$copy/bin/tools"
	make --no-print-directory -C "$dir/$copy" release VERSION=v0.0.0-test
	(cd "$dir/$copy/bin/release" && sha256sum --quiet -c SHA256SUMS)
done
diff "$dir"/{first,second}/bin/release/SHA256SUMS || {
	echo 'release-check: the same commit gave different files, see above' >&2
	exit 1
}
for want in linux-amd64 linux-arm64 linux-{amd64,arm64}{.deb,.rpm,-image.tar,.cdx.json}; do
	[ -s "$dir/first/bin/release/sluice-v0.0.0-test-$want" ] || { echo "release-check: there is no $want" >&2; exit 1; }
done
for want in {linux,darwin}-{amd64,arm64}{,.cdx.json} windows-{amd64,arm64}{.exe,.cdx.json}; do
	[ -s "$dir/first/bin/release/kubectl-sluice-v0.0.0-test-$want" ] || { echo "release-check: there is no kubectl-sluice for $want" >&2; exit 1; }
done
echo 'release-check: the release is complete, and the same both times.'
