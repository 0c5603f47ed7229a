#!/bin/bash
# release.sh VERSION DIR: builds what is published for a tag into DIR. The same commit, built
# by the same version of Go, gives the same files.
set -euo pipefail
version=${1-} dir=${2-}
fail() { echo "release: $*" >&2; exit 1; }

[[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]] ||
	fail "VERSION is '$version': name the tag of this commit, as in make release VERSION=v0.1.0"
[ -z "$(git status --porcelain)" ] ||
	fail "the working tree has changes that no commit has: commit or remove what git status lists"
git tag --points-at HEAD | grep -qxF "$version" ||
	fail "the commit that is checked out has no tag $version: create it with git tag -a $version, or check it out"

SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export VERSION=$version SOURCE_DATE_EPOCH CGO_ENABLED=0
rm -rf "$dir"
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

host=$(go env GOHOSTARCH)
for arch in "$host" amd64 arm64; do
	binary=$dir/sluice-$version-linux-$arch
	[ -e "$binary" ] || GOARCH=$arch go build -trimpath -buildvcs=true -ldflags=-w -o "$binary" ./plugins/sluice
	kube=$dir/sluice-kube-$version-linux-$arch
	[ -e "$kube" ] || GOARCH=$arch go build -trimpath -buildvcs=true -ldflags=-w -o "$kube" ./plugins/sluice-kube
done
says=$("$dir/sluice-$version-linux-$host" version)
[[ $says == "sluice $version,"* ]] || fail "the binary says '$says', not $version: is another tag on this commit?"
configs/package/share.sh "$dir/sluice-$version-linux-$host" bin/package

for arch in amd64 arm64; do
	name=sluice-$version-linux-$arch
	for packager in deb rpm; do
		SLUICE=$dir/$name GOARCH=$arch bin/tools/nfpm package --config configs/package/nfpm.yaml \
			--packager $packager --target "$dir/$name.$packager" >/dev/null
	done
	(cd configs/package && go run ./image -binary "$dir/$name" -kube "$dir/sluice-kube-$version-linux-$arch" -o "$dir/$name-image.tar" -arch $arch \
		-name "localhost/sluice/sluice:$version" -version "$version" -revision "$(git rev-parse HEAD)")
	(cd test/sbom && go run . "$dir/$name" "$dir/$name.cdx.json" &&
		go run . "$dir/sluice-kube-$version-linux-$arch" "$dir/sluice-kube-$version-linux-$arch.cdx.json")
done
# For operators' machines.
for os in linux darwin windows; do
	for arch in amd64 arm64; do
		kubectl=$dir/kubectl-sluice-$version-$os-$arch
		suffix=$([ $os != windows ] || echo .exe)
		GOOS=$os GOARCH=$arch go build -trimpath -buildvcs=true -ldflags=-w -o "$kubectl$suffix" ./plugins/kubectl-sluice
		(cd test/sbom && go run . "$kubectl$suffix" "$kubectl.cdx.json")
	done
done
(cd "$dir" && sha256sum kubectl-sluice-* sluice-* >"$work/SHA256SUMS" && mv "$work/SHA256SUMS" .)
echo "release: $version is in $dir:"
ls -1 "$dir"
