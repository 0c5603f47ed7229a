#!/bin/bash
# Writes go.mod and go.sum for the programs of a release of Kubernetes into the folder of
# its minor version: test/kube/programs/module.sh v1.36.3 makes test/kube/programs/1.36.
#
# Kubernetes' own go.mod takes its staging modules from folders of its repository. The Go
# proxy has them as modules, v0.36.3 for Kubernetes v1.36.3: one replacement for each.
set -euo pipefail
version=$1
minor=$(cut -d. -f1-2 <<<"${version#v}")
staging=v0.${version#v1.}
mkdir -p "$(dirname "$0")/$minor"
cd "$(dirname "$0")/$minor"
own=$(cd /tmp && go mod download -json "k8s.io/kubernetes@$version" | sed -nE 's/^\s*"GoMod": "(.*)",?$/\1/p')
{
	echo "// etcd and Kubernetes $version as programs, for test/kube: see ../module.sh"
	echo "module github.com/sluice-dev/sluice/test/kube/programs/$minor"
	echo
	grep -E '^(go|godebug) ' "$own"
	echo
	echo "require k8s.io/kubernetes $version"
	echo
	echo "tool ("
	printf '\tk8s.io/kubernetes/cmd/%s\n' kube-apiserver kube-controller-manager kube-scheduler kubectl kubelet
	printf '\tgo.etcd.io/etcd/server/v3\n'
	echo ")"
	echo
	echo "replace ("
	sed -nE "s|^\s*(k8s.io/[a-z-]+) => .*|\t\1 => \1 $staging|p" "$own"
	echo ")"
} >go.mod
go mod tidy
