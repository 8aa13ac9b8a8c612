# One static binary and nothing else. `docker buildx build --platform linux/amd64,linux/arm64` builds each on its own platform.
# Where no container engine runs, `make image` makes the same image.
FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
RUN host=$(rustc -vV | sed -n 's/^host: //p') \
 && RUSTFLAGS="-C target-feature=+crt-static" cargo build --locked --release --target "$host" --bin berth \
 && install -D -m 0755 "target/$host/release/berth" /out/berth

FROM scratch
COPY --from=build /out/berth /berth
USER 65532:65532
ENTRYPOINT ["/berth"]
