# For those who have a container engine and a registry: make docker-build.
# The demo and the tests make the same images without either: make images.
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=dev
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=${VERSION}" -o /out/ ./cmd/di-orchestrator ./examples/cartpole

FROM scratch AS cartpole
COPY --from=build /out/cartpole /cartpole
USER 65532:65532
ENTRYPOINT ["/cartpole"]

FROM scratch AS di-orchestrator
COPY --from=build /out/di-orchestrator /di-orchestrator
USER 65532:65532
ENTRYPOINT ["/di-orchestrator"]
