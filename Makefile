# All that a developer or CI runs. Every target does its own set-up.
SHELL := /bin/sh
.DEFAULT_GOAL := help

ifdef SNAPSHOT
VERSION ?= v0.0.0-snapshot
endif
TAG ?= dev
# What is built for a local image has its tag as the version: so the plugin, which reads
# the images of the cluster, finds that all are of one build.
BUILD_VERSION := $(or $(VERSION),$(TAG))
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
IMG ?= di-orchestrator:$(TAG)
OUT ?= $(CURDIR)/out
# Programs, tools and tests share what is compiled of Kubernetes' libraries: all are
# built with the same flags. Only the race detector needs another build, with cgo.
export CGO_ENABLED := 0
# Compilers collect garbage half as often: a quarter less processor time, at most twice
# the memory. Benchmarks run as users do.
demo build images helm helm3 cluster-tool cluster-up generate manifests fmt lint verify test test-unit test-modules test-race test-integration test-slow e2e e2e-short conformance: export GOGC ?= 200
TOOL := go tool -modfile=hack/tools/go.mod
CLUSTER := $(OUT)/bin/cluster
IMAGE := go run -C hack/image .
HELM_DOCS := go tool -modfile=hack/helm/go.mod helm-docs
RELEASE := go run -C hack/release .
# Programs say their version, and their requests to the API server do.
CLIENT_VERSION := k8s.io/client-go/pkg/version
REVISION := $(shell git rev-parse HEAD 2>/dev/null)
LDFLAGS = -s -w -X main.version=$(VERSION) -X $(CLIENT_VERSION).gitVersion=$(VERSION) -X $(CLIENT_VERSION).gitCommit=$(REVISION)

.PHONY: help
help: ## Say what each target does.
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ The main job

# kind comes first where a container engine runs; else Kubernetes is built from source.
.PHONY: demo
demo: cluster-tool ## Bring up a cluster, install the operator and train three jobs.
	@if hack/kind usable; then $(MAKE) --no-print-directory helm images && hack/kind up $(TARBALLS); \
	elif [ -z "$$KUBECONFIG" ]; then $(CLUSTER) demo $(TARBALLS) >/dev/null; \
	else $(MAKE) --no-print-directory helm images cluster-up && { $(LOAD); }; fi
	@eval "$$(hack/kind env || $(CLUSTER) env)" && PATH="$(OUT)/bin:$$PATH" go run ./hack/demo

.PHONY: demo-down
demo-down: ## Take the demo's cluster down again.
	@if hack/kind env >/dev/null; then hack/kind down; else $(MAKE) --no-print-directory cluster-down; fi

##@ Build

.PHONY: build
build images: VERSION = $(BUILD_VERSION)
build: ## Build the binaries into out/bin.
	go build -ldflags '$(LDFLAGS)' -o $(OUT)/bin/ ./cmd/... ./test/workload/cartpole

.PHONY: images
images: build ## Build the image tarballs into out/, without a container engine.
	$(IMAGE) --name di-orchestrator:$(TAG) --out $(OUT)/di-orchestrator.tar --entrypoint /di-orchestrator --file $(OUT)/bin/di-orchestrator=/di-orchestrator
	$(IMAGE) --name kubectl-di:$(TAG) --out $(OUT)/kubectl-di.tar --entrypoint /kubectl-di --file $(OUT)/bin/kubectl-di=/kubectl-di
	$(IMAGE) --name cartpole:$(TAG) --out $(OUT)/cartpole.tar --entrypoint /cartpole --file $(OUT)/bin/cartpole=/cartpole

# Debian's numpy or PyTorch and what they link, without what only their tests, documentation and screens need.
# The links of BLAS and LAPACK are made by scripts of packages, which do not run.
MULTIARCH = /usr/lib/$(shell uname -m)-linux-gnu
DIST := usr/lib/python3/dist-packages
NUMPY := --leave-out 'usr/share,usr/lib/*/gconv,usr/lib/python3.11/lib2to3,usr/lib/python3.11/test,$(DIST)/numpy/distutils,$(DIST)/numpy/tests,$(DIST)/numpy/*/tests,$(DIST)/numpy/f2py,$(DIST)/pkg_resources' \
	--env LD_LIBRARY_PATH=$(MULTIARCH)/blas:$(MULTIARCH)/lapack
# PyTorch 1.13 has no default of torchrun's options redirects and tee on Python 3.11: these redirect nothing.
TORCH := --debian python3-torch,python3-numpy \
	--leave-out 'usr/share,usr/lib/*/dri,usr/lib/*/mfx,usr/lib/*/gconv,usr/lib/*/libLLVM-*,usr/lib/libtorch-test' \
	--leave-out '$(DIST)/torch/test,$(DIST)/torch/bin/*Test,$(DIST)/torch/bin/test_*,$(DIST)/hypothesis,$(DIST)/sympy' \
	--env LD_LIBRARY_PATH=$(MULTIARCH)/blas:$(MULTIARCH)/lapack --env PET_REDIRECTS=9:1 --env PET_TEE=9:1

# It is in no other target, because it downloads 260 MB.
.PHONY: image-torch
image-torch: ## Build an image of Debian's PyTorch, the Python library and the examples in Python into out/torch.tar.
	@mkdir -p $(OUT)
	$(IMAGE) --name torch:$(TAG) --out $(OUT)/torch.tar --entrypoint /usr/bin/python3 $(TORCH) \
		--folder $(CURDIR)/python/src=/$(DIST) --folder $(CURDIR)/examples/torch=/examples

# It downloads 25 MB.
.PHONY: image-grpo
image-grpo: ## Build an image of Debian's numpy, the Python library and the example of GRPO into out/grpo.tar.
	@mkdir -p $(OUT)
	$(IMAGE) --name grpo:$(TAG) --out $(OUT)/grpo.tar --entrypoint /usr/bin/python3 --debian python3-numpy $(NUMPY) \
		--folder $(CURDIR)/python/src=/$(DIST) --folder $(CURDIR)/examples/grpo=/examples

# Debian's Open MPI and MPICH, and the daemon and the clients of ssh. Perl is there for scripts of packages, which do not run.
MPI := --debian openmpi-bin,mpich,python3-mpi4py,openssh-server,openssh-client,dash,coreutils,sed \
	--leave-out 'usr/share/doc,usr/share/man,usr/share/locale,usr/share/perl,usr/lib/*/perl,usr/lib/*/perl-base,usr/bin/perl*,usr/lib/*/gconv'

# It is in no other target, because it downloads 60 MB.
.PHONY: image-mpi
image-mpi: ## Build an image of Debian's Open MPI and MPICH and the examples of MPI into out/mpi.tar.
	@mkdir -p $(OUT)
	$(IMAGE) --name mpi:$(TAG) --out $(OUT)/mpi.tar --entrypoint /bin/sh $(MPI) \
		--folder $(CURDIR)/hack/image/ssh=/ --folder $(CURDIR)/examples/mpi=/examples

PYTHON ?= python3
NEED_PYTHON = @command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) is not in PATH: install Python 3.9 or later" >&2; exit 1; }

.PHONY: python
python: ## Build the wheel and the source archive of the Python library into out/python.
	$(NEED_PYTHON)
	@rm -rf $(OUT)/python
	@DI_VERSION='$(VERSION)' $(PYTHON) python/build_backend/di_build.py $(OUT)/python

NEED_NODE = @command -v npm >/dev/null || { echo "npm is not in PATH: install Node.js 20.19 or later" >&2; exit 1; }

# No script of a package runs. What is built is committed, so that Go alone builds the plugin.
.PHONY: web
web: ## Build the page of kubectl di ui into web/dist.
	$(NEED_NODE)
	cd web && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error && npm run --silent build

TARBALLS := $(OUT)/di-orchestrator.tar $(OUT)/cartpole.tar
# Exit code 3 says that KUBECONFIG names another cluster, which takes images in a way of its own.
LOAD = $(CLUSTER) load-image $(TARBALLS) || { [ $$? = 3 ] && echo "the images must be in the cluster already"; }

.PHONY: images-load
images-load: images cluster-tool ## Load the images into the local cluster.
	@$(LOAD)

.PHONY: image-torch-load
image-torch-load: TARBALLS := $(OUT)/torch.tar
image-torch-load: image-torch cluster-tool ## Build it, and load it into the local cluster.
	@$(LOAD)

.PHONY: image-grpo-load
image-grpo-load: TARBALLS := $(OUT)/grpo.tar
image-grpo-load: image-grpo cluster-tool ## Build it, and load it into the local cluster.
	@$(LOAD)

.PHONY: image-mpi-load
image-mpi-load: TARBALLS := $(OUT)/mpi.tar
image-mpi-load: image-mpi cluster-tool ## Build it, and load it into the local cluster.
	@$(LOAD)

.PHONY: docker-build
docker-build: ## Build the operator's image IMG with a container engine.
	docker build --target di-orchestrator --build-arg VERSION=$(VERSION) --build-arg REVISION=$(REVISION) --build-arg LDFLAGS='$(LDFLAGS)' -t $(IMG) .

.PHONY: install
install: ## Install the operator from image IMG into the cluster that kubectl reaches.
	kubectl kustomize config/default | sed 's|image: di-orchestrator:dev|image: $(IMG)|' | kubectl apply -f -

##@ Release

REGISTRY ?= ghcr.io/opendilab
RELEASE_FLAGS = --version '$(VERSION)' --out $(OUT)/release --helm $(OUT)/bin/helm --ldflags '$(LDFLAGS)' --registry $(REGISTRY) $(if $(SNAPSHOT),--snapshot) $(PLATFORMS:%=--platform %)

# What can be refused is, before anything is built.
.PHONY: release
release: ## Build all of the release VERSION into out/release; SNAPSHOT=1 takes what is not committed, PLATFORMS=linux/amd64 only that.
	@$(RELEASE) preflight $(RELEASE_FLAGS)
	@$(MAKE) --no-print-directory helm
	@$(RELEASE) build $(RELEASE_FLAGS)

.PHONY: release-check
release-check: ## Build the release twice and compare the bytes; FRESH=1 compiles everything again for it.
	@$(RELEASE) preflight $(RELEASE_FLAGS) --twice
	@$(MAKE) --no-print-directory release
	@$(RELEASE) check $(RELEASE_FLAGS) $(if $(FRESH),--fresh)

##@ Local cluster

.PHONY: cluster-tool
cluster-tool:
	@go build -C hack/cluster -o $(CLUSTER) .

.PHONY: cluster-up
cluster-up: cluster-tool ## Bring up a real Kubernetes on this machine, without Docker.
	@$(CLUSTER) up >/dev/null

.PHONY: cluster-down
cluster-down: cluster-tool ## Take it down and remove all that it made.
	$(CLUSTER) down

.PHONY: cluster-env
cluster-env: cluster-tool ## Print the shell settings by which kubectl finds the plugin, and it or the demo's cluster of kind.
	@{ hack/kind env || $(CLUSTER) env; } && echo 'export PATH="$(OUT)/bin:$$PATH"'

.PHONY: cluster-status
cluster-status: cluster-tool ## Say what of it runs.
	$(CLUSTER) status

##@ Development

.PHONY: generate
generate: ## Generate deep copies, the references and the diagrams.
	$(TOOL) controller-gen object:headerFile=hack/boilerplate.go.txt paths=./apis/...
	for version in v1alpha1 v2alpha1; do $(TOOL) crd-ref-docs --source-path=apis/$$version --config=hack/api-docs/config.yaml \
		--templates-dir=hack/api-docs --renderer=markdown --output-path=docs/reference/$$version.md --log-level=ERROR || exit 1; done
	go test ./job/lifecycle -run DocumentedStateMachines -update
	go run -C hack/site ./diagrams $(CURDIR)/docs/images
	go run ./cmd/kubectl-di reference >docs/reference/kubectl-di.md
	$(NEED_PYTHON)
	$(PYTHON) python/tools/reference.py >docs/reference/python.md

.PHONY: manifests
manifests: ## Generate CRDs, RBAC and the manifest for DI-engine.
	$(TOOL) controller-gen crd paths=./apis/... output:crd:dir=config/crd/bases
	go run ./hack/crd config/crd/bases/diengine.opendilab.org_dijobs.yaml
	$(TOOL) controller-gen rbac:roleName=di-orchestrator-operator paths=./cmd/... paths=./controllers/... output:rbac:dir=config/rbac/operator
	$(TOOL) controller-gen rbac:roleName=di-orchestrator-webhook paths=./webhook/... output:rbac:dir=config/rbac/webhook
	$(TOOL) controller-gen rbac:roleName=di-orchestrator-takeover paths=./upgrade/takeover/... output:rbac:dir=config/rbac/takeover
	$(TOOL) controller-gen rbac:roleName=di-orchestrator-server paths=./server/... output:rbac:dir=config/rbac/server
	$(TOOL) controller-gen rbac:roleName=di-orchestrator-history paths=./history/... output:rbac:dir=config/rbac/history
	go run ./hack/chart config charts/di-orchestrator
	$(RELEASE) launcher
	$(HELM_DOCS) --chart-search-root=charts --log-level=warning

.PHONY: fmt
fmt: ## Format the code.
	$(TOOL) golangci-lint fmt ./...

.PHONY: lint
lint: ## Lint the code of all modules.
	hack/lint

.PHONY: verify
verify: ## Check that all is generated, formatted, linted and committed; changes nothing.
	hack/verify

TEXT_PICTURES := ./cmd/kubectl-di ./cmd/kubectl-di/internal/jobs ./cmd/kubectl-di/internal/top

# The tests that draw a picture also notice when it is out of date.
.PHONY: pictures
pictures: ## Draw the pictures of terminals in docs/images, by the plugin and a real kube-apiserver.
	$(ASSETS) $(TEST) -count=1 -run 'ThePicture' $(TEXT_PICTURES) -args -update

.PHONY: docs
docs: ## Build the documentation as a site into out/site, and check its links.
	go run -C hack/site . -root $(CURDIR) -out $(OUT)/site
	@echo "open $(OUT)/site/index.html"

##@ Tests

.PHONY: helm
helm:
	@echo "building helm"
	@go build -C hack/helm -o $(OUT)/bin/helm helm.sh/helm/v4/cmd/helm

.PHONY: helm3
helm3:
	@echo "building helm 3"
	@go build -C hack/helm -o $(OUT)/bin/helm3 helm.sh/helm/v3/cmd/helm

# Tests whose names end with _Slow belong to test-slow. -timeout bounds each package.
QUICK := -skip '_Slow$$'
HELMS := HELM=$(OUT)/bin/helm HELM3=$(OUT)/bin/helm3
# The assets are built first: a command in an assignment would fail unnoticed.
ASSETS := assets=$$(hack/assets) && KUBEBUILDER_ASSETS="$$assets"
# For the tests of the history.
DATABASE := postgres=$$(hack/postgres) && export POSTGRES="$$postgres" &&
# The linter vets all code. go test would vet every library first.
TEST := go test -vet=off
# The test of the simulator that needs an API server.
IN_CLUSTER := ./di-sim/internal/incluster
RACE := CGO_ENABLED=1 $(TEST) -race
# Eventually otherwise asks the API server every 10 ms, which takes a quarter of a core.
export GOMEGA_DEFAULT_EVENTUALLY_POLLING_INTERVAL := 50ms

# One command for both: tests that wait run while others are compiled.
.PHONY: test
test: helm test-modules ## Run the quick tests: those of test-unit and test-integration.
	$(DATABASE) $(ASSETS) $(HELMS) $(TEST) -p 4 -timeout 30m $(QUICK) $$(hack/packages quick)
	$(ASSETS) go test -C sim -vet=off $(QUICK) $(IN_CLUSTER)

.PHONY: test-unit
test-unit: test-modules ## Run the tests that need no API server and no Helm; two minutes.
	$(DATABASE) $(TEST) -timeout 15m $(QUICK) $$(hack/packages unit)

.PHONY: test-modules
test-modules:
	go test -C hack/site -vet=off -count=1 ./...
	go test -C hack/cluster -vet=off ./...
	go test -C hack/bench -vet=off ./...
	go test -C hack/mutation -vet=off ./...
	go test -C sim -vet=off $(QUICK) $$(go list -C sim ./... | grep -v $(IN_CLUSTER:.%=%))
	@# The tests with tools of Debian run where these are.
	go test -C hack/image -vet=off -tags "$$(command -v dpkg-deb >/dev/null && echo debian)" ./...

.PHONY: test-web
test-web: ## Run the unit tests of the page, after make web.
	$(NEED_NODE)
	cd web && npm test --silent

WEB = export CHROMIUM="$$(hack/browser)" && $(ASSETS) $(TEST) -tags web -count=1 -v -timeout 20m

.PHONY: e2e-web
e2e-web: web cluster-up images-load helm ## Use the page in Chromium, with 5,000 jobs and with CartPole on the local cluster; PICTURES=FOLDER keeps pictures.
	$(WEB) -run InABrowser ./cmd/kubectl-di
	export CHROMIUM="$$(hack/browser)" && $(E2E) -timeout 40m -ginkgo.label-filter=web

.PHONY: e2e-web-short
e2e-web-short: web ## Use the page in Chromium, with a real API server and 500 jobs; PICTURES=FOLDER keeps pictures, of which sheet-*.png are 24 of all views.
	$(WEB) -run InABrowser ./cmd/kubectl-di -args -web.jobs=500

.PHONY: test-race
test-race: ## Run the unit tests of packages with goroutines with the race detector; needs gcc.
	@# Random jobs are converted one after another, and take ten times as long with the race detector.
	$(RACE) -timeout 15m -skip '_Slow$$|RandomV|RandomJobs' $$(hack/packages race)

.PHONY: test-integration
test-integration: helm ## Run the tests on a real kube-apiserver and etcd.
	@# These mostly wait for programs that they started.
	$(ASSETS) $(HELMS) $(TEST) -p 4 -timeout 30m $(QUICK) $$(hack/packages integration)
	$(ASSETS) go test -C sim -vet=off $(QUICK) $(IN_CLUSTER)

# Other minors than the one of all other tests, and packages whose result depends on the API server.
KUBERNETES ?= 1.30.14
KUBERNETES_TESTS := ./webhook/... ./server ./test/versions ./upgrade/crds

.PHONY: test-kubernetes
test-kubernetes: ## Run tests on the API server of each version of KUBERNETES, and write docs/reference/kubernetes.md; to build one takes minutes.
	mkdir -p $(OUT)/kubernetes
	for version in $(KUBERNETES); do \
		assets=$$(hack/assets $$version) || exit 1; \
		KUBEBUILDER_ASSETS=$$assets $(TEST) -json -p 2 -timeout 30m $(QUICK) $(KUBERNETES_TESTS) >$(OUT)/kubernetes/$$version.json || echo "some tests failed on $$version"; \
	done
	go run ./hack/versions Kubernetes $$(ls $(OUT)/kubernetes/*.json | sort -V) >docs/reference/kubernetes.md

PYTHONS ?= 3.10 3.11 3.12 3.13 3.14

.PHONY: test-pythons
test-pythons: ## Run the tests of the Python library by each version of PYTHONS, and write docs/reference/pythons.md.
	mkdir -p $(OUT)/pythons
	assets=$$(hack/assets) || exit 1; \
	for version in $(PYTHONS); do \
		python=$$(hack/python $$version) || exit 1; \
		PATH="$$python:$$PATH" KUBEBUILDER_ASSETS="$$assets" $(TEST) -count=1 -json -timeout 30m ./test/python >$(OUT)/pythons/$$version.json || echo "some tests failed by $$version"; \
	done
	go run ./hack/versions Python $$(ls $(OUT)/pythons/*.json | sort -V) >docs/reference/pythons.md

.PHONY: test-slow
test-slow: helm helm3 ## Run long rounds, both Helms, the takeover, the alerts, the release, and all tests with the race detector; two hours.
	$(DATABASE) $(ASSETS) $(HELMS) $(TEST) -timeout 1h -run '_Slow$$' $$(hack/packages slow)
	$(TEST) -timeout 1h ./job/lifecycle -world.rounds=5000
	$(TEST) -timeout 1h ./conversion -run ComesBackFrom -conversion.objects=100000
	$(ASSETS) $(TEST) -timeout 2h ./test/model -model.rounds=1000
	$(ASSETS) $(TEST) -timeout 1h ./controllers/dijob -crash.stride=1 -ginkgo.focus='crashes after'
	$(DATABASE) $(RACE) -timeout 1h $(QUICK) $$(hack/packages unit)
	$(ASSETS) $(HELMS) $(RACE) -timeout 1h $(QUICK) $$(hack/packages integration)
	$(ASSETS) CGO_ENABLED=1 go test -C sim -vet=off -race -timeout 1h $(QUICK) ./...
	CGO_ENABLED=1 go test -C hack/bench -vet=off -race ./...
	CGO_ENABLED=1 go test -C hack/mutation -vet=off -race ./...
	CGO_ENABLED=1 go test -C hack/site -vet=off -race -count=1 ./...
	CGO_ENABLED=1 go test -C hack/cluster -vet=off -race ./...
	CGO_ENABLED=1 go test -C hack/image -vet=off -race ./...
	go test -C hack/alerts -vet=off ./...
	$(HELMS) CGO_ENABLED=1 go test -C hack/release -vet=off -race ./...

.PHONY: test-all
test-all: test test-slow e2e ## Run all tests there are.

.PHONY: test-hostile
test-hostile: ## Attack the programs for a minute in each way that test/hostile knows, and print what the attackers and all others got.
	KUBEBUILDER_ASSETS="$$(hack/assets)" go test -tags hostile ./test/hostile -count=1 -v -timeout 2h -hostile.duration=60s -hostile.p99=1s $(HOSTILE_FLAGS)

.PHONY: soak
soak: ## Run an installation under fire for an hour, and check its history: SOAK_FLAGS="-for 5m -seed 7", see docs/reliability.md.
	$(ASSETS) go test -vet=off -tags soak ./test/soak -count=1 -timeout 3h -args $(SOAK_FLAGS)

# Left out of e2e-short: what exchanges the installation again and again, and what
# cuts the power of a node and waits until it counts as lost, what trains for long, what
# repeats others with a claim, and what needs the image of PyTorch, Chromium, KEDA or Prometheus, which take minutes to build.
E2E_LONG := chart upgrade power goodput autoscale release torch web kueue-long keda prometheus gang-long mpi-long claims
E2E = eval "$$($(CLUSTER) env)" && PATH="$(OUT)/bin:$$PATH" go test -tags e2e -count=1 -v ./test/e2e/...

.PHONY: e2e
e2e: cluster-up images-load helm helm3 ## Run the end-to-end tests on the local cluster.
	$(CLUSTER) metrics || [ $$? = 3 ] # Another cluster has metrics-server, or the tests of usage are skipped.
	for neighbour in kueue keda prometheus; do $(CLUSTER) $$neighbour || [ $$? = 3 ] || exit 1; done # Another cluster has them, or their tests are skipped.
	$(E2E) -timeout 3h $(E2E_FLAGS)

.PHONY: e2e-short
e2e-short: cluster-up images-load helm ## Run the end-to-end tests that CI runs: without the labels of E2E_LONG.
	$(CLUSTER) kueue || [ $$? = 3 ]
	$(E2E) -timeout 40m -ginkgo.label-filter='!($(subst $() , || ,$(E2E_LONG)))' $(E2E_FLAGS)

# It installs nothing: the cluster has the chart and the image of the workload.
.PHONY: conformance
conformance: cluster-tool ## Run every cell of docs/conformance.md on the cluster that KUBECONFIG names, or on the local one.
	go build -o $(OUT)/bin/ ./cmd/kubectl-di
	eval "$$($(CLUSTER) env)" && PATH="$(OUT)/bin:$$PATH" $(TEST) -tags conformance -count=1 -v -parallel 3 -timeout 20m ./test/conformance $(CONFORMANCE_FLAGS)

.PHONY: readme-test
readme-test: ## Do what the README says in a fresh clone of what is committed, with an empty home: needs what the demo needs.
	go test -tags readme -count=1 -timeout 3h -v -run Readme ./test/readme

OBJECTS ?= 1000000
BENCH = go build -C hack/bench -o $(OUT)/bin/bench . && KUBEBUILDER_ASSETS="$$(hack/assets)" $(OUT)/bin/bench
RESULTS := docs/benchmarks/results

.PHONY: bench
bench: ## Measure what docs/benchmarks.md shows, for an hour on an idle machine, and write it; FLAGS as of bench growth -h.
	$(BENCH) growth -results $(RESULTS) $(FLAGS)
	$(BENCH) growth -jobs 100 -finished 10000 -name finished -results $(RESULTS)
	$(BENCH) start -trace '' -results $(RESULTS)
	$(BENCH) start -jobs 1 -pods 5000 -rounds 3 -trace '' -name start-job -results $(RESULTS)
	$(BENCH) size -results $(RESULTS)
	$(BENCH) shards -results $(RESULTS)
	$(BENCH) kill -results $(RESULTS)
	$(MAKE) --no-print-directory bench-docs

.PHONY: bench-docs
bench-docs: ## Write docs/benchmarks.md and its plots from the raw results in docs/benchmarks/results.
	go build -C hack/bench -o $(OUT)/bin/bench . && $(OUT)/bin/bench report

.PHONY: bench-conversion
bench-conversion: ## Convert OBJECTS random objects each way, and measure reviews and single writes, each figure beside a reference.
	go test ./conversion -run ComesBackFrom -count=1 -timeout 4h -conversion.objects=$(OBJECTS)
	KUBEBUILDER_ASSETS="$$(hack/assets)" go test ./conversion ./test/versions -run - -bench 'Review|Writes' $(FLAGS)

.PHONY: bench-server
bench-server: ## Measure GETs of polling coordinators beside a handler without work; FLAGS as of go test.
	KUBEBUILDER_ASSETS="$$(hack/assets)" go test ./server -run - -bench Polls $(FLAGS)

.PHONY: bench-allocator
bench-allocator: ## Measure the allocator's policy on TRACES, a directory as of docs/simulator.md, each figure beside its goal; QUICK=1 for fewer workloads.
	go build -C sim -o $(OUT)/bin/ ./di-sim && GOMAXPROCS=1 $(OUT)/bin/di-sim -goals -traces "$(or $(TRACES),$(error TRACES is empty: must be a directory of traces, docs/simulator.md))" $(if $(QUICK),-quick) $(FLAGS)

.PHONY: bench-growth
bench-growth: ## Measure 100 to 10,000 jobs of 5 pods on fake nodes, and what finished jobs cost; FLAGS as of bench growth -h.
	$(BENCH) growth $(FLAGS)

.PHONY: bench-start
bench-start: ## Measure how pods of jobs start, beside a client that creates the same pods; FLAGS as of bench start -h, such as -scheduler=stand-in.
	$(BENCH) start $(FLAGS)

.PHONY: bench-size
bench-size: ## Measure what etcd and the operator hold for jobs of different shapes; FLAGS as of bench size -h.
	$(BENCH) size $(FLAGS)

.PHONY: bench-shards
bench-shards: ## Measure the load of two shards beside one; Linux, root; FLAGS as of bench shards -h.
	$(BENCH) shards $(FLAGS)

.PHONY: bench-kill
bench-kill: ## Measure what killing or stopping one of two operators delays; FLAGS as of bench kill -h.
	$(BENCH) kill $(FLAGS)

.PHONY: bench-reports
bench-reports: ## Measure allocation rounds and profiling reports of preemptible jobs; FLAGS as of bench reports -h.
	$(BENCH) reports $(FLAGS)

.PHONY: bench-history
bench-history: ## Read a history of a million jobs in each database, each figure beside plain SQL; FLAGS as of bench history -h.
	$(BENCH) history -database sqlite -name history-sqlite $(FLAGS)
	POSTGRES="$$(hack/postgres)" $(OUT)/bin/bench history -database postgres -name history-postgres $(FLAGS)

.PHONY: bench-records
bench-records: ## Measure what recording 10,000 running jobs costs, and how late it is; FLAGS as of bench records -h.
	$(BENCH) records $(FLAGS)

.PHONY: mutation
mutation: ## Delete each statement of the pure packages in turn; a test has to notice. GROUP=NAME of hack/mutation/net.yaml; all take an hour.
	go build -C hack/mutation -o $(OUT)/bin/mutation . && $(OUT)/bin/mutation -group '$(GROUP)' -equivalent hack/mutation/equivalent.txt -record hack/mutation/record.txt

.PHONY: fuzz
FUZZTIME ?= 1m
fuzz: ## Fuzz all that parses what others send, each target of each package for FUZZTIME.
	@for package in $$(grep -rl --include=*_test.go '^func Fuzz' . | xargs -n1 dirname | sort -u); do \
	for target in $$(go test $$package -list '^Fuzz' | grep ^Fuzz); do \
		go test $$package -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) || exit 1; done; done

# The commit decides which target is next, so that a run can be repeated.
.PHONY: fuzz-next
fuzz-next: ## Fuzz one target for FUZZTIME; each commit has another one.
	@all=$$(grep -rn --include=*_test.go '^func Fuzz' . | sed -E 's|^(.*)/[^/]*:[0-9]+:func (Fuzz[A-Za-z0-9]*)\(.*|\1 \2|' | sort); \
	next=$$(echo "$$all" | sed -n "$$(($$(git rev-list --count HEAD) % $$(echo "$$all" | wc -l) + 1))p"); \
	echo "fuzzing $$next for $(FUZZTIME)"; \
	go test $${next% *} -run '^$$' -fuzz "^$${next#* }\$$" -fuzztime $(FUZZTIME)

.PHONY: clean
clean: ## Remove what was built in the checkout.
	rm -rf $(OUT)
