#!/usr/bin/env bash
# An OCI image with one static binary and nothing else, without a container engine.
#
#   image/build.sh [BINARY]      # builds berth (release, linked statically) when no binary is given
#
# Leaves in target/image: `layout/` (OCI image layout) and berth-image.tar, the same as one file
# (`docker load -i`, `podman load -i`, `skopeo copy oci-archive:...`). The same binary gives the same bytes.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
out=${OUT:-$root/target/image}
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$root/Cargo.toml" | head -1)
say() { printf 'image: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

binary=${1:-}
if [ -z "$binary" ]; then
    host=$(rustc -vV | sed -n 's/^host: //p')
    say "building berth for $host, linked statically: some minutes the first time"
    # The C library's static archive is part of its development package.
    (cd "$root" && RUSTFLAGS="-C target-feature=+crt-static" CARGO_TARGET_DIR="$root/target/static" \
        cargo build --locked --release --target "$host" --bin berth)
    binary=$root/target/static/$host/release/berth
fi
[ -f "$binary" ] || fail "$binary is no file"
case $(uname -m) in
x86_64) arch=amd64 ;;
aarch64) arch=arm64 ;;
*) fail "$(uname -m) is no architecture that images are made for: x86_64, aarch64" ;;
esac

rm -rf "$out"
layout=$out/layout
mkdir -p "$layout/blobs/sha256" "$out/root"
install -m 0755 "$binary" "$out/root/berth"

# blob FILE: moves it to its place and prints `sha256:... size`.
blob() {
    local digest size
    digest=$(sha256sum "$1" | cut -d' ' -f1)
    size=$(stat -c %s "$1")
    mv "$1" "$layout/blobs/sha256/$digest"
    echo "sha256:$digest $size"
}

# Owner, order and times are fixed, so that the same binary is the same layer.
tar --create --file "$out/layer.tar" --directory "$out/root" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --format=ustar berth
diff_id=sha256:$(sha256sum "$out/layer.tar" | cut -d' ' -f1)
gzip --no-name --best "$out/layer.tar"
read -r layer layer_size < <(blob "$out/layer.tar.gz")

cat >"$out/config.json" <<EOF
{"architecture":"$arch","os":"linux","config":{"User":"65532:65532","Entrypoint":["/berth"],"WorkingDir":"/","Labels":{"org.opencontainers.image.title":"berth","org.opencontainers.image.version":"$version","org.opencontainers.image.licenses":"Apache-2.0"}},"rootfs":{"type":"layers","diff_ids":["$diff_id"]},"history":[{"created":"1970-01-01T00:00:00Z","created_by":"image/build.sh"}],"created":"1970-01-01T00:00:00Z"}
EOF
read -r config config_size < <(blob "$out/config.json")

oci=application/vnd.oci.image
cat >"$out/manifest.json" <<EOF
{"schemaVersion":2,"mediaType":"$oci.manifest.v1+json","config":{"mediaType":"$oci.config.v1+json","digest":"$config","size":$config_size},"layers":[{"mediaType":"$oci.layer.v1.tar+gzip","digest":"$layer","size":$layer_size}]}
EOF
read -r manifest manifest_size < <(blob "$out/manifest.json")
echo '{"imageLayoutVersion":"1.0.0"}' >"$layout/oci-layout"
cat >"$layout/index.json" <<EOF
{"schemaVersion":2,"mediaType":"$oci.index.v1+json","manifests":[{"mediaType":"$oci.manifest.v1+json","digest":"$manifest","size":$manifest_size,"platform":{"architecture":"$arch","os":"linux"},"annotations":{"org.opencontainers.image.ref.name":"berth:$version"}}]}
EOF
tar --create --file "$out/berth-image.tar" --directory "$layout" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --format=ustar blobs index.json oci-layout
rm -rf "$out/root"
say "berth:$version for linux/$arch, $((layer_size / 1048576)) MiB: $layout and berth-image.tar"
echo "$layout"
