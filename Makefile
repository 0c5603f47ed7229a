# Everything runs from a fresh clone on Debian, as root where real containers are
# involved; Go is the only thing that has to be there before.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

# What is built with the same flags is compiled once for programs, tests and lint. Go's tests don't vet again what
# lint has vetted.
export CGO_ENABLED := 0
export GOFLAGS := $(strip $(GOFLAGS) -trimpath -vet=off)

TOOLS := bin/tools
FUZZTIME := 3000x
IMAGE := localhost/sluice/sluice:latest

# The minor version of Kubernetes that kube-test runs: test/kube/programs has a module for each.
export KUBERNETES ?= 1.36
KUBE := bin/kube/$(KUBERNETES)
KUBE_NODE := bin/kube/node

# Debian packages: curl, jq and openssl for the documentation's commands; a C compiler
# for the race detector and runc, which in Kubernetes' pods needs seccomp; busybox for
# these pods; QEMU for the virtual machines, which find their kernel
# and systemd through apt's lists and download them; a browser for the node map's tests
# (350 MB on disk, 15 s), and npm, where there is none, for what checks its accessibility.
PACKAGES := curl jq openssl gcc libc6-dev libseccomp-dev busybox-static qemu-system-x86 chromium $(if $(shell command -v npm),,npm)

CONTAINERD_TAGS := no_btrfs no_devmapper no_zfs netgo osusergo
RUNC_LDFLAGS := -linkmode external -extldflags -static
GOTESTSUM := $(TOOLS)/gotestsum

# What needs no root, no runtime and no browser. Each package has more time than a busy
# machine takes for it with the race detector: Go's own ten minutes are too short.
UNIT = $$(go list ./... | grep -vE '/test/(e2e|vm|bench/mix|docs/node)$$')
UNIT_TIMEOUT := 40m

# What has goroutines. With the race detector, long random histories take fifteen times as
# long, so they are shorter there (-short), and run at their full length without it.
CONCURRENT := ./pkg/engine/... ./pkg/runtime/... ./pkg/kernel/... ./pkg/cluster/... ./pkg/kube/... ./pkg/view/... \
	./pkg/observe/... ./pkg/peers/... ./pkg/config/... ./plugins/...

# Begin first, so that no long one runs alone at the end.
KUBE_LONGEST := ./daemonset ./dra ./sell ./pins

# In test/external, a module of its own. It reads files outside, whose changes Go's cache
# of test results doesn't notice.
EXTERNAL = -count=1 $$(go list ./... | grep -v '/web$$')

# For tests on real kernels and runtimes alone: at most 3 that failed run once more.
# gotestsum doesn't do so after a panic, or where a package failed to build. The report
# lists each test that ran twice.
RERUN = --rerun-fails=1 --rerun-fails-max-failures=3 --rerun-fails-report
flaky = { grep -hs . $(1) || true; } | sed 's/^/FLAKY: failed first, passed when run again: /'

.PHONY: help build downloads man deb image release release-check check unit fuzz web-test web-screenshots e2e kube-test vm-test bench bench-mix bench-guest bench-classes lint vuln sbom manifests demo demo-placement test packages tools kube-tools runtime probe clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "%-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# -w leaves out what only a debugger reads: a fifth of each program.
build: ## bin/sluice, bin/sluice-kube and bin/kubectl-sluice, static
	go build -ldflags=-w -o bin/ ./plugins/...

man: build ## manual pages in bin/man
	bin/sluice man bin/man

# The version of packages and images is the binary's own, which Go takes from git, unless GOFLAGS forbids it.
SET_VERSION = export VERSION=$$(bin/sluice version | sed -E 's/^sluice ([^,]*),.*/\1/'); \
	[ "$$VERSION" != "(devel)" ] || VERSION=$$(git log -1 --date=format:%Y%m%d%H%M%S --format=v0.0.0-%cd-%h)

deb: build $(TOOLS)/nfpm ## bin/sluice.deb, the Debian package
	configs/package/share.sh bin/sluice bin/package
	$(SET_VERSION); SLUICE=bin/sluice GOARCH=$$(go env GOARCH) SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) \
		$(TOOLS)/nfpm package --config configs/package/nfpm.yaml --packager deb --target bin/sluice.deb

image: build ## bin/sluice-image.tar, an OCI archive: IMAGE names it
	$(SET_VERSION); cd configs/package && go run ./image -binary ../../bin/sluice -kube ../../bin/sluice-kube -o ../../bin/sluice-image.tar -name $(IMAGE) \
		-version "$$VERSION" -revision "$$(git rev-parse HEAD)" -arch "$$(go env GOARCH)"

release: $(TOOLS)/nfpm ## what is published for the tag VERSION of this commit, in bin/release
	configs/package/release.sh "$(VERSION)" bin/release

release-check: $(TOOLS)/nfpm ## build a release of this commit twice, and compare the files
	configs/package/release-check.sh

check: lint $(TOOLS)/gotestsum ## for daily work, some minutes: lint, and the unit tests without what takes long
	$(GOTESTSUM) --format standard-quiet -- -short -timeout $(UNIT_TIMEOUT) $(UNIT)
	cd test/external && ../../$(GOTESTSUM) --format standard-quiet -- -short -timeout $(UNIT_TIMEOUT) $(EXTERNAL)

test: downloads lint sbom unit fuzz web-test e2e kube-test vm-test ## everything, on a fresh machine
	@$(call flaky,bin/flaky-e2e.txt bin/flaky-docs.txt bin/flaky-kube.txt bin/flaky-day.txt bin/flaky-vm.txt)

unit: $(TOOLS)/gotestsum $(TOOLS)/helm ## what needs no root and no runtime, and what is concurrent with the race detector too
	$(GOTESTSUM) --format standard-quiet -- -timeout $(UNIT_TIMEOUT) $(UNIT)
	CGO_ENABLED=1 $(GOTESTSUM) --format standard-quiet -- -race -short -timeout $(UNIT_TIMEOUT) $(CONCURRENT)
	cd test/external && ../../$(GOTESTSUM) --format standard-quiet -- -timeout $(UNIT_TIMEOUT) $(EXTERNAL)
	go test -run '^$$' -bench . -skip Loop -benchtime 1x -timeout $(UNIT_TIMEOUT) ./test/bench >/dev/null # each short benchmark still works
	cd test/promql && go test -count=1 ./... # a module of its own; what it reads is outside, where go has no eye on it
	cd configs/package && go test -count=1 ./... # and so is this
	cd test/helm && go test -count=1 ./... # and this

# Each package's test binary is built once, and only Sluice's own packages are made to
# report what an input covers: `go test -fuzz` would build every dependency anew for each
# package, which takes some ten minutes. Inputs that it finds go where `go test -fuzz` puts them.
fuzz: ## every fuzz target for some inputs (FUZZTIME)
	@mkdir -p bin/fuzz; cache=$$(go env GOCACHE)/fuzz; \
	packages=$$(grep -rlE '^func Fuzz\w+' --include='*_test.go' pkg topology plugins | xargs -n 1 dirname | sort -u); \
	go test -c -gcflags='github.com/sluice-dev/sluice/...=-d=libfuzzer' -o bin/fuzz/ $$(sed 's|^|./|' <<<"$$packages"); \
	for package in $$packages; do \
		binary=$(CURDIR)/bin/fuzz/$${package##*/}.test; \
		targets=$$($$binary -test.list '^Fuzz'); \
		for target in $$targets; do \
			echo "fuzz ./$$package $$target"; \
			(cd "$$package" && $$binary -test.run '^$$' -test.fuzz "^$$target\$$" -test.fuzztime $(FUZZTIME) \
				-test.fuzzminimizetime 5s -test.fuzzcachedir "$$cache/github.com/sluice-dev/sluice/$$package"); \
		done; \
	done

web-test: $(TOOLS)/gotestsum $(TOOLS)/axe/done ## the node map in Chromium
	cd test/external && ../../$(GOTESTSUM) --hide-summary output --format standard-verbose -- -count=1 -timeout 10m ./web

web-screenshots: ## make the pictures of docs/web.md anew
	SLUICE_SCREENSHOTS=$(CURDIR)/docs go test -C test/external -count=1 -run TestScreenshots -v ./web

e2e: build tools deb image $(TOOLS)/servers ## real containerd, real containers, the documentation's commands (root)
	@rm -f bin/flaky-e2e.txt bin/flaky-docs.txt
	$(GOTESTSUM) --hide-summary output --format standard-verbose $(RERUN)=bin/flaky-e2e.txt \
		--packages './test/e2e ./test/bench/mix' -- -p 1 -count=1 -timeout 30m
	$(GOTESTSUM) --hide-summary output --format standard-verbose $(RERUN)=bin/flaky-docs.txt --rerun-fails-run-root-test \
		--packages ./test/docs/node -- -count=1 -timeout 30m
	@$(call flaky,bin/flaky-e2e.txt bin/flaky-docs.txt)
	go test -run '^$$' -bench . -benchtime 1x -timeout 10m ./pkg/engine/agent >/dev/null # each benchmark on real cgroups still works

kube-test: runtime kube-tools image $(TOOLS)/helm $(GOTESTSUM) ## a real Kubernetes with two nodes (root; KUBERNETES=1.34, 1.36 or 1.37)
	@rm -f bin/flaky-kube.txt bin/flaky-day.txt
	cd test/kube && ../../$(GOTESTSUM) --hide-summary output --format standard-verbose $(RERUN)=../../bin/flaky-kube.txt --rerun-fails-run-root-test \
		--packages "$(KUBE_LONGEST) $$(go list ./... | grep -v '/firstday$$' | tr '\n' ' ')" -- -p 3 -count=1 -timeout 30m
	cd test/kube && ../../$(GOTESTSUM) --hide-summary output --format standard-verbose $(RERUN)=../../bin/flaky-day.txt --rerun-fails-run-root-test \
		--packages ./firstday -- -count=1 -timeout 30m # alone, because its pods use all CPUs
	@$(call flaky,bin/flaky-kube.txt bin/flaky-day.txt)

vm-test: build tools ## real kernel with cgroup v2 and NUMA: QEMU guests, as many at once as CPUs, some of systemd
	@rm -f bin/flaky-vm.txt
	$(GOTESTSUM) --hide-summary output --format standard-verbose $(RERUN)=bin/flaky-vm.txt --packages ./test/vm -- -count=1 -timeout 120m
	@$(call flaky,bin/flaky-vm.txt)

bench: ## benchmarks of all packages
	go test -run '^$$' -bench . -benchmem $$(go list ./... | grep -v '/test/bench$$')
	go test -C test/external -run '^$$' -bench . -benchmem ./compare
	go test -run '^$$' -bench 'Shared|Pin|Claim|Decision' -benchtime 1000x ./test/bench
	go test -run '^$$' -bench Streams -benchtime 40x ./test/bench
	go test -run '^$$' -bench 'Synchronize|Memory' -benchtime 10x ./test/bench
	go test -run '^$$' -bench Knobs -benchtime 4x ./test/bench
	go test -run '^$$' -bench Loop -benchtime 1x -timeout 30m ./test/bench

bench-mix: build tools $(if $(findstring -service,$(FLAGS)),$(TOOLS)/servers) ## a service beside batch work: alone, unmanaged, Kubernetes, Sluice (root; FLAGS="-h")
	go build -o bin/mix ./test/bench/mix
	bin/mix $(FLAGS)

bench-guest: build tools ## bench-mix in a QEMU guest on another kernel (KERNEL=path of a vmlinuz; FLAGS="-parts=mix -work=6ms ...")
	go run ./test/vm/bench -kernel "$(KERNEL)" -- $(FLAGS)

bench-classes: ## how a kernel ranks batch work below a service, in a QEMU guest (KERNEL=path of a vmlinuz; CPUS=2; FLAGS="-levels=30 ...")
	go run ./test/vm/bench -kernel "$(KERNEL)" -program classes -cpus $(or $(CPUS),2) -- $(FLAGS)

# Collecting garbage as often as by default takes a quarter of the linter's time.
lint: export GOGC := 400
lint: export GOMEMLIMIT := 6GiB
lint: $(TOOLS)/golangci-lint ## golangci-lint, with vet
	$(TOOLS)/golangci-lint run
	for module in configs/package test/external test/helm test/kube test/promql test/sbom; do (cd $$module && ../../$(TOOLS)/golangci-lint run --config ../../.golangci.yml); done

# Without the database, which is on the Internet (VULNDB names a copy, as
# file:///srv/vulndb), it says so and goes on: findings alone fail.
vuln: $(TOOLS)/govulncheck ## govulncheck: vulnerabilities in what the binary calls
	@status=0; said=$$($(TOOLS)/govulncheck $(addprefix -db ,$(VULNDB)) ./plugins/... 2>&1) || status=$$?; echo "$$said"; \
	if [ $$status = 1 ] && grep -q 'fetching vulnerabilities' <<<"$$said"; then \
		echo 'SKIPPED: nothing is known of vulnerabilities: the database is not reachable (VULNDB=file:///... names a copy)'; \
	else exit $$status; fi

sbom: build ## bin/*.cdx.json: the modules in each binary, with their licences
	cd test/sbom && go test . && for program in sluice sluice-kube kubectl-sluice; do go run . ../../bin/$$program ../../bin/$$program.cdx.json; done

manifests: $(TOOLS)/helm ## render configs/kubernetes and the chart's golden files from the chart
	go test -C test/helm -count=1 -run 'TestRenders|TestManifests' . -update

# What building prints is in bin/demo.log.
demo: ## a service beside batch work: alone, with Kubernetes' shares, with Sluice (root)
	@[ "$$(id -u)" = 0 ] || { echo 'The demo runs real containers, which needs root. Without root: make demo-placement.'; exit 1; }
	@mkdir -p bin
	@echo 'Building Sluice, containerd and runc, which takes some minutes the first time (see bin/demo.log).'
	@{ $(MAKE) --no-print-directory build runtime && go build -o bin/mix ./test/bench/mix; } >bin/demo.log 2>&1 || { tail -n 20 bin/demo.log; exit 1; }
	@bin/mix -demo -slice 8s

demo-placement: ## where some pods run without and with Sluice: on a private containerd, or a made-up machine
	@mkdir -p bin
	@{ $(MAKE) --no-print-directory build && go build -o bin/demo ./test/demo; } >bin/demo.log 2>&1 || { cat bin/demo.log; exit 1; }
	@bin/demo

packages: ## install the Debian packages that are missing
	@{ dpkg -s $(PACKAGES) && apt-cache show linux-image-cloud-amd64; } >/dev/null 2>&1 || { apt-get update -qq && apt-get install -y -qq --no-install-recommends $(PACKAGES); }

# The modules that `make test` builds.
MODULES := . configs/package test/external test/helm test/kube test/kube/programs/$(KUBERNETES) test/kube/programs/cni \
	test/lint test/promql test/sbom test/tools test/tools17

# A first run waits for two servers, that of the modules and that of the packages: at the same time.
downloads: ## install the Debian packages that are missing, and meanwhile download all Go modules
	@$(MAKE) --no-print-directory packages & for module in $(MODULES); do (cd $$module && go mod download); done; wait $$!

tools: runtime $(TOOLS)/1.7/containerd $(TOOLS)/cni/bridge $(TOOLS)/gotestsum ## containerd, runc, CNI's plugins and the probe, cached in bin/tools

runtime: $(TOOLS)/2/containerd $(TOOLS)/runc probe

clean: ## remove what was built
	rm -rf bin .cache

# The tools are built once for each version in their modules.
$(TOOLS)/2/containerd: test/tools/go.mod test/tools/go.sum
	cd test/tools && go build -tags '$(CONTAINERD_TAGS)' -o ../../$(TOOLS)/2/ github.com/containerd/containerd/v2/cmd/{containerd,containerd-shim-runc-v2,ctr}
	@touch $@

$(TOOLS)/1.7/containerd: test/tools17/go.mod test/tools17/go.sum
	cd test/tools17 && go build -tags '$(CONTAINERD_TAGS)' -o ../../$(TOOLS)/1.7/ github.com/containerd/containerd/cmd/{containerd,containerd-shim-runc-v2,ctr}
	@touch $@

# runc needs C to enter namespaces; static, so that it runs in the virtual
# machine; without seccomp, so that it needs no library.
$(TOOLS)/runc: test/tools/go.mod test/tools/go.sum
	cd test/tools && CGO_ENABLED=1 go build -tags 'netgo osusergo' -ldflags '$(RUNC_LDFLAGS)' -o ../../$@ github.com/opencontainers/runc
	@touch $@

# Real servers for the benchmark, from Debian, with the libraries that they need. They are not
# installed, so that nothing starts on this machine.
SERVERS := nginx redis-server redis-tools libc6 libcrypt1 libpcre2-8-0 libssl3 zlib1g libatomic1 libjemalloc2 liblzf1 libsystemd0 \
	liblzma5 libzstd1 liblz4-1 libgcrypt20 libgpg-error0 libcap2 libgcc-s1 libstdc++6

$(TOOLS)/servers:
	@rm -rf $@.new && mkdir -p $@.new/deb
	cd $@.new/deb && apt="apt-get download -qq -o APT::Sandbox::User=root $(SERVERS)"; $$apt || { apt-get update -qq && $$apt; }
	for package in $@.new/deb/*.deb; do dpkg-deb -x $$package $@.new; done
	@rm -r $@.new/deb && mv $@.new $@

kube-tools: $(KUBE)/kubelet $(KUBE_NODE)/cni/bridge $(KUBE_NODE)/runc ## Kubernetes' programs, cached in bin/kube: the first time takes 10 minutes of two CPUs

# The version is what the API server and the kubelet tell of themselves.
$(KUBE)/kubelet: test/kube/programs/$(KUBERNETES)/go.mod test/kube/programs/$(KUBERNETES)/go.sum
	cd test/kube/programs/$(KUBERNETES) && version=$$(go list -m -f '{{.Version}}' k8s.io/kubernetes) && set_=-X\ k8s.io/component-base/version.git && \
		go build -ldflags "-s -w $${set_}Version=$$version $${set_}Major=1 $${set_}Minor=$(KUBERNETES:1.%=%) $${set_}TreeState=clean" \
		-o ../../../../$(KUBE)/ go.etcd.io/etcd/server/v3 k8s.io/kubernetes/cmd/{kube-apiserver,kube-controller-manager,kube-scheduler,kubectl,kubelet}
	mv $(KUBE)/server $(KUBE)/etcd
	@touch $@

# For the pods of Kubernetes, and for those of test/e2e that have networks of their own.
$(KUBE_NODE)/cni/bridge $(TOOLS)/cni/bridge: test/kube/programs/cni/go.mod test/kube/programs/cni/go.sum
	cd test/kube/programs/cni && go build -o ../../../../$(@D)/ github.com/containernetworking/plugins/plugins/{ipam/host-local,main/bridge,main/loopback}
	@touch $@

# Kubernetes' pods ask for the runtime's default seccomp profile.
$(KUBE_NODE)/runc: test/tools/go.mod test/tools/go.sum
	cd test/tools && CGO_ENABLED=1 go build -tags 'seccomp netgo osusergo' -ldflags '$(RUNC_LDFLAGS)' -o ../../$@ github.com/opencontainers/runc
	@touch $@

$(TOOLS)/gotestsum: test/tools/go.mod test/tools/go.sum
	cd test/tools && go build -o ../../$@ gotest.tools/gotestsum
	@touch $@

$(TOOLS)/nfpm: configs/package/go.mod configs/package/go.sum
	cd configs/package && go build -o ../../$@ github.com/goreleaser/nfpm/v2/cmd/nfpm
	@touch $@

$(TOOLS)/helm: test/helm/go.mod test/helm/go.sum
	cd test/helm && go build -o ../../$@ helm.sh/helm/v4/cmd/helm
	@touch $@

$(TOOLS)/golangci-lint: test/lint/go.mod test/lint/go.sum
	cd test/lint && go build -o ../../$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	@touch $@

$(TOOLS)/govulncheck: test/vuln/go.mod test/vuln/go.sum
	cd test/vuln && go build -o ../../$@ golang.org/x/vuln/cmd/govulncheck
	@touch $@

# The lock file has the package's hash.
$(TOOLS)/axe/done: test/external/web/package.json test/external/web/package-lock.json
	mkdir -p $(@D)
	cp $^ $(@D)/
	npm ci --prefix $(@D) --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

probe:
	go build -ldflags '-s -w' -o $(TOOLS)/probe ./test/probe
