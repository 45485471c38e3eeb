# syntax=docker/dockerfile:1

# --- Build ----------------------------------------------------------------------------------------------------------------
FROM rust:1.95-slim-bookworm AS build
# The cryptography, SQLite and the allocator contain C.
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev make && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --release --locked --workspace --exclude crier-bench --bins && \
    mkdir -p /out && \
    cp target/release/crier target/release/crier-api target/release/crier-worker target/release/crier-scheduler /out/

# --- Image ----------------------------------------------------------------------------------------------------------------
FROM debian:bookworm-slim
# The fonts are for reports as PDF, in the scripts that the program itself has no font for (docs/reports.md).
RUN apt-get update && \
    apt-get install -y --no-install-recommends \
        ca-certificates fonts-noto-cjk fonts-noto-color-emoji fonts-noto-core && \
    rm -rf /var/lib/apt/lists/* && \
    useradd --system --uid 10001 --user-group --no-create-home --home-dir /data --shell /usr/sbin/nologin crier && \
    install -d -o crier -g crier -m 0700 /data
COPY --from=build /out/ /usr/local/bin/
USER 10001:10001
WORKDIR /data
VOLUME /data
# A container's loopback cannot be reached from outside, so listen on all addresses; the published ports decide who has
# access. The ops server stays on loopback unless CRIER_OPS_ADDR is set.
ENV CRIER_HTTP_ADDR=0.0.0.0:8080 \
    CRIER_DATA_DIR=/data
# Otherwise, glibc has eight arenas per core, each of which keeps the most memory that it ever needed.
ENV MALLOC_ARENA_MAX=2 \
    MALLOC_MMAP_THRESHOLD_=131072
EXPOSE 8080
# The image has no curl, but bash can connect to a port. Kubernetes ignores this check, and has its own.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD bash -c '\
    addr=${CRIER_OPS_ADDR:-:9090} && exec 3<>/dev/tcp/127.0.0.1/${addr##*:} && \
    printf "GET /readyz HTTP/1.0\r\n\r\n" >&3 && read -r _ status _ <&3 && [ "$status" = 200 ]'
STOPSIGNAL SIGTERM
CMD ["crier"]
