# For those who have a container engine and a registry: make docker-build.
# The demo, the tests and releases make the same images without either, by
# hack/image: what is changed here is to be changed there.
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN mkdir -p /root-of-image/etc /root-of-image/tmp && chmod 1777 /root-of-image/tmp && cd /root-of-image/etc && \
    printf 'root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/tmp:/sbin/nologin\n' > passwd && \
    printf 'root:x:0:\nnonroot:x:65532:\n' > group
ARG TARGETOS TARGETARCH
ARG VERSION=dev
ARG LDFLAGS="-s -w -X main.version=${VERSION}"
RUN CGO_ENABLED=0 GOOS=${TARGETOS} GOARCH=${TARGETARCH} \
    go build -trimpath -buildvcs=false -ldflags "${LDFLAGS}" -o /out/ ./cmd/di-orchestrator ./cmd/kubectl-di ./test/workload/cartpole

FROM scratch AS base
COPY --from=build /root-of-image/ /
ARG VERSION=dev
ARG REVISION
LABEL org.opencontainers.image.version=${VERSION} \
      org.opencontainers.image.revision=${REVISION} \
      org.opencontainers.image.source=https://github.com/opendilab/DI-orchestrator \
      org.opencontainers.image.url=https://github.com/opendilab/DI-orchestrator \
      org.opencontainers.image.licenses=Apache-2.0 \
      org.opencontainers.image.vendor="The DI Orchestrator Authors"
ENV PATH=/usr/local/bin:/usr/bin:/bin:/
WORKDIR /
USER 65532:65532

FROM base AS cartpole
LABEL org.opencontainers.image.title=cartpole \
      org.opencontainers.image.description="Example of a training program for DI Orchestrator"
COPY --from=build /out/cartpole /cartpole
ENTRYPOINT ["/cartpole"]

FROM base AS kubectl-di
LABEL org.opencontainers.image.title=kubectl-di \
      org.opencontainers.image.description="Plugin of kubectl for DI Orchestrator"
COPY --from=build /out/kubectl-di /kubectl-di
ENTRYPOINT ["/kubectl-di"]

FROM base AS di-orchestrator
LABEL org.opencontainers.image.title=di-orchestrator \
      org.opencontainers.image.description="Operator and server of DI Orchestrator"
COPY --from=build /out/di-orchestrator /di-orchestrator
ENTRYPOINT ["/di-orchestrator"]
