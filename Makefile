.PHONY: generate manifests
CONTROLLER_GEN := go tool -modfile=hack/tools/go.mod controller-gen
generate:
	$(CONTROLLER_GEN) object:headerFile=hack/boilerplate.go.txt paths=./apis/...
manifests:
	$(CONTROLLER_GEN) crd paths=./apis/... output:crd:dir=config/crd/bases
