# syntax=docker/dockerfile:1

# --- The programs ---------------------------------------------------------------------------------------------------------
FROM rust:1.95-slim-bookworm AS build
# C is in the cryptography, in SQLite and in the allocator.
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev make && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --release --locked --workspace --bins && \
    mkdir -p /out && \
    cp target/release/crier target/release/crier-api target/release/crier-worker target/release/crier-scheduler /out/

# --- The image ------------------------------------------------------------------------------------------------------------
FROM debian:bookworm-slim
RUN apt-get update && \
    apt-get install -y --no-install-recommends ca-certificates && \
    rm -rf /var/lib/apt/lists/* && \
    useradd --system --uid 10001 --user-group --no-create-home --home-dir /data --shell /usr/sbin/nologin crier && \
    install -d -o crier -g crier -m 0700 /data
COPY --from=build /out/ /usr/local/bin/
USER 10001:10001
WORKDIR /data
VOLUME /data
# In a container, loopback can be reached by nobody: what is published decides who gets in. The ops server stays on it
# unless CRIER_OPS_ADDR says otherwise.
ENV CRIER_HTTP_ADDR=0.0.0.0:8080 \
    CRIER_DATA_DIR=/data
EXPOSE 8080
# Readiness is at /readyz of the ops server; the orchestrator asks there.
HEALTHCHECK NONE
STOPSIGNAL SIGTERM
CMD ["crier"]
