# All that a developer or CI runs. Every target does its own set-up.
SHELL := /bin/sh
.DEFAULT_GOAL := help

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
TAG ?= dev
IMG ?= di-orchestrator:$(TAG)
OUT ?= $(CURDIR)/out
TOOL := go tool -modfile=hack/tools/go.mod
CLUSTER := $(OUT)/bin/cluster
IMAGE := go run -C hack/image .
LDFLAGS := -s -w -X main.version=$(VERSION)

.PHONY: help
help: ## Say what each target does.
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ The main job

.PHONY: demo
demo: cluster-up images-load ## Bring up a cluster, install the operator and train three jobs.
	@eval "$$($(CLUSTER) env)" && go run ./hack/demo

.PHONY: demo-down
demo-down: cluster-down ## Take the local cluster down again.

##@ Build

.PHONY: build
build: ## Build the binaries into out/bin.
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o $(OUT)/bin/ ./cmd/... ./examples/cartpole

.PHONY: images
images: build ## Build the image tarballs into out/, without a container engine.
	$(IMAGE) --name di-orchestrator:$(TAG) --out $(OUT)/di-orchestrator.tar --entrypoint /di-orchestrator --file $(OUT)/bin/di-orchestrator=/di-orchestrator
	$(IMAGE) --name cartpole:$(TAG) --out $(OUT)/cartpole.tar --entrypoint /cartpole --file $(OUT)/bin/cartpole=/cartpole

# Exit code 3 says that KUBECONFIG names another cluster, which takes images in a way of its own.
.PHONY: images-load
images-load: images cluster-tool ## Load the images into the local cluster.
	@$(CLUSTER) load-image $(OUT)/di-orchestrator.tar $(OUT)/cartpole.tar || { [ $$? = 3 ] && echo "going on: the images must be there already"; }

.PHONY: docker-build
docker-build: ## Build the operator's image IMG with a container engine.
	docker build --target di-orchestrator --build-arg VERSION=$(VERSION) -t $(IMG) .

.PHONY: install
install: ## Install the operator from image IMG into the cluster that kubectl reaches.
	kubectl kustomize config/default | sed 's|image: di-orchestrator:dev|image: $(IMG)|' | kubectl apply -f -

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
cluster-env: cluster-tool ## Print the shell settings that point kubectl at it.
	@$(CLUSTER) env

.PHONY: cluster-status
cluster-status: cluster-tool ## Say what of it runs.
	$(CLUSTER) status

##@ Development

.PHONY: generate
generate: ## Generate deep copies and the API reference.
	$(TOOL) controller-gen object:headerFile=hack/boilerplate.go.txt paths=./apis/...
	$(TOOL) crd-ref-docs --source-path=apis --config=hack/api-docs.yaml --renderer=markdown --output-path=docs/reference/api.md --log-level=ERROR

.PHONY: manifests
manifests: ## Generate CRDs and RBAC.
	$(TOOL) controller-gen crd paths=./apis/... output:crd:dir=config/crd/bases
	go run ./hack/crd config/crd/bases/diengine.opendilab.org_dijobs.yaml
	$(TOOL) controller-gen rbac:roleName=di-orchestrator-operator paths=./cmd/... paths=./controllers/... paths=./webhook/... paths=./internal/certs/... output:rbac:dir=config/rbac/operator
	$(TOOL) controller-gen rbac:roleName=di-orchestrator-server paths=./server/... output:rbac:dir=config/rbac/server

.PHONY: fmt
fmt: ## Format the code.
	$(TOOL) golangci-lint fmt ./...

.PHONY: lint
lint: ## Lint the code.
	$(TOOL) golangci-lint run ./...

.PHONY: verify
verify: ## Check that all is generated, formatted, linted and committed; changes nothing.
	hack/verify

##@ Tests

.PHONY: test
test: ## Run unit, property and integration tests with the race detector.
	KUBEBUILDER_ASSETS="$$(hack/assets)" go test -race -timeout 20m ./...
	go test -C hack/cluster -race ./...
	go test -C hack/image -race ./...

.PHONY: e2e
e2e: cluster-up images-load ## Run the end-to-end tests on the local cluster.
	eval "$$($(CLUSTER) env)" && go test -tags e2e -count=1 -timeout 40m -v ./test/e2e/...

OBJECTS ?= 1000000

.PHONY: bench-conversion
bench-conversion: ## Measure conversion, each figure beside a reference; OBJECTS random objects each way.
	go test ./conversion -run ComesBackFrom -count=1 -timeout 4h -conversion.objects=$(OBJECTS)
	KUBEBUILDER_ASSETS="$$(hack/assets)" go run ./hack/bench/conversion

.PHONY: bench-server
bench-server: ## Measure di-server and the replicas it asks for, each figure beside a reference; FLAGS as of hack/bench/server.
	KUBEBUILDER_ASSETS="$$(hack/assets)" go run ./hack/bench/server $(FLAGS)

# The tests skipped look at imports and at the generator, not at the mapping.
.PHONY: mutation
mutation: ## Delete each statement of the conversion in turn; a test has to notice.
	go run ./hack/mutation -package ./conversion -files spec.go,status.go,held.go,convert.go,json.go,lost.go \
		-equivalent hack/mutation/equivalent.txt -- -test.skip 'Pure|SetEveryField' -conversion.objects=200

.PHONY: fuzz
FUZZTIME ?= 1m
fuzz: ## Fuzz the conversion, each target for FUZZTIME.
	@for target in $$(go test ./conversion -list Fuzz | grep ^Fuzz); do \
		go test ./conversion -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) || exit 1; done

.PHONY: clean
clean: ## Remove what was built in the checkout.
	rm -rf $(OUT)
