#!/bin/sh
# Builds the programs of the test control plane from their Go modules.
#
#   tests/controlplane/build.sh [program...]
#
# Programs: etcd, kwok, kube-apiserver, kube-controller-manager, kube-scheduler,
# helm, prometheus, and the operators training-operator (Kubeflow), ray-operator (KubeRay),
# jobset-operator and lws-operator, with their CRDs in <operator>-crds/ and the
# configuration of their webhooks in <operator>-webhooks/ (all by default). They are left in
# target/controlplane/<version>/ of the repository, or in BERTH_CONTROLPLANE_DIR.
# What is there already at its pinned version is not built again; parallel
# callers wait for one build.
# With KUBEBUILDER_ASSETS set, etcd and kube-apiserver found there are not built.
# The path of the directory is the only line on stdout; progress goes to stderr.
set -eu

KUBERNETES=v1.36.3
ETCD=v3.6.13
KWOK=v0.8.0
HELM=v4.3.2
PROMETHEUS=v0.316.0
TRAINING_OPERATOR=v1.9.3
RAY_OPERATOR=v1.5.1
JOBSET_OPERATOR=v0.10.1
LWS_OPERATOR=v0.7.0

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
out=${BERTH_CONTROLPLANE_DIR:-$root/target/controlplane/$KUBERNETES}
known="etcd kwok kube-apiserver kube-controller-manager kube-scheduler helm prometheus training-operator ray-operator jobset-operator lws-operator"
programs=${*:-$known}

say() { printf 'controlplane: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

# pin PROGRAM: the version that its stamp must hold.
pin() {
    case $1 in
    etcd) echo "$ETCD" ;;
    kwok) echo "$KWOK" ;;
    kube-*) echo "$KUBERNETES" ;;
    helm) echo "$HELM" ;;
    prometheus) echo "$PROMETHEUS" ;;
    training-operator) echo "$TRAINING_OPERATOR" ;;
    ray-operator) echo "$RAY_OPERATOR" ;;
    jobset-operator) echo "$JOBSET_OPERATOR" ;;
    lws-operator) echo "$LWS_OPERATOR" ;;
    esac
}

# missing PROGRAM: whether it has to be built.
missing() {
    case $1 in
    etcd | kube-apiserver)
        [ -n "${KUBEBUILDER_ASSETS:-}" ] && [ -x "$KUBEBUILDER_ASSETS/$1" ] && return 1 ;;
    esac
    [ -x "$out/$1" ] && [ "$(cat "$out/.$1.version" 2>/dev/null)" = "$(pin "$1")" ] && return 1
    return 0
}

# build MODULE MINUTES LDFLAGS PACKAGE...: one `go build` of the programs in $todo; with the build tags in $tags.
build() {
    module=$1 minutes=$2 ldflags=$3
    shift 3
    log=$out/.build-$module.log
    stage=$out/.stage-$module
    rm -rf "$stage"
    mkdir -p "$stage"
    say "building$todo from source: about $minutes min on two cores, the first time only"
    start=$(date +%s)
    (cd "$here/$module" && CGO_ENABLED=0 exec go build -v -trimpath -tags "${tags:-}" -ldflags "-s -w $ldflags" -o "$stage/" "$@") >"$log" 2>&1 &
    pid=$!
    # An interrupted build must not go on in the background.
    trap 'kill "$pid" 2>/dev/null || true; exit 130' INT TERM
    ticks=0
    while kill -0 "$pid" 2>/dev/null; do
        sleep 1
        ticks=$((ticks + 1))
        if [ $((ticks % 30)) -eq 0 ]; then
            say "still building$todo: $(($(date +%s) - start)) s, $(grep -vc '^go: ' "$log" || true) packages compiled"
        fi
    done
    if ! wait "$pid"; then
        tail -n 20 "$log" >&2
        fail "building$todo failed; the whole log is $log"
    fi
    trap - INT TERM
    for program in $todo; do
        built=$stage/$program
        [ "$program" = etcd ] && built=$stage/server # named after its module
        [ -x "$built" ] || built=$stage/$program
        mv -f "$built" "$out/$program"
        pin "$program" >"$out/.$program.version"
    done
    rm -rf "$stage" "$log"
    say "built$todo in $(($(date +%s) - start)) s"
}

# source OPERATOR MODULE: the directory of the module's source, fetched when it is not there yet.
source() {
    (cd "$here/$1" && go mod download "$2" && go list -m -f '{{.Dir}}' "$2") || fail "the source of $2 can't be fetched"
}

# crds OPERATOR MODULE DIRECTORY: copies the CRDs that the operator's module brings.
crds() {
    from=$(source "$1" "$2")/$3
    rm -rf "$out/$1-crds"
    mkdir "$out/$1-crds"
    cp "$from"/*_*.yaml "$out/$1-crds/"
    chmod u+w "$out/$1-crds"/*
}

# webhooks OPERATOR MODULE DIRECTORY [PATCHES]: copies the configuration of the module's webhooks, and the patches to it.
webhooks() {
    from=$(source "$1" "$2")/$3
    rm -rf "$out/$1-webhooks"
    mkdir "$out/$1-webhooks"
    cp "$from/manifests.yaml" "$from/${4:-.}"/*ting-patch.yaml "$out/$1-webhooks/"
    chmod u+w "$out/$1-webhooks"/*
}

# select_missing NAME...: sets $todo to those of them that are asked for and missing.
select_missing() {
    todo=
    for name in "$@"; do
        for program in $programs; do
            if [ "$name" = "$program" ] && missing "$program"; then
                todo="$todo $program"
            fi
        done
    done
    [ -n "$todo" ]
}

build_all() {
    if select_missing etcd; then
        build etcd 1 "" go.etcd.io/etcd/server/v3
    fi
    if select_missing kwok; then
        build kwok 3 "-X sigs.k8s.io/kwok/pkg/consts.Version=$KWOK" sigs.k8s.io/kwok/cmd/kwok
    fi
    if select_missing kube-apiserver kube-controller-manager kube-scheduler; then
        version=k8s.io/component-base/version
        minor=${KUBERNETES#v1.}
        packages=
        for program in $todo; do packages="$packages k8s.io/kubernetes/cmd/$program"; done
        # shellcheck disable=SC2086 # one word per package
        build kubernetes 10 "-X $version.gitVersion=$KUBERNETES -X $version.gitMajor=1 -X $version.gitMinor=${minor%%.*}" $packages
    fi
    if select_missing helm; then
        build helm 3 "" helm.sh/helm/v4/cmd/helm
    fi
    if select_missing prometheus; then
        # Without its pages and without what discovers targets in clouds.
        tags=remove_all_sd
        build prometheus 4 "" github.com/prometheus/prometheus/cmd/prometheus
        tags=
    fi
    if select_missing training-operator; then
        crds training-operator github.com/kubeflow/training-operator manifests/base/crds
        build training-operator 3 "" berth.test/controlplane/training-operator
    fi
    if select_missing ray-operator; then
        crds ray-operator github.com/ray-project/kuberay/ray-operator config/crd/bases
        build ray-operator 3 "" github.com/ray-project/kuberay/ray-operator
    fi
    if select_missing jobset-operator; then
        crds jobset-operator sigs.k8s.io/jobset config/components/crd/bases
        webhooks jobset-operator sigs.k8s.io/jobset config/components/webhook patches
        build jobset-operator 3 "" berth.test/controlplane/jobset-operator
    fi
    if select_missing lws-operator; then
        crds lws-operator sigs.k8s.io/lws config/crd/bases
        webhooks lws-operator sigs.k8s.io/lws config/webhook
        build lws-operator 3 "" berth.test/controlplane/lws-operator
    fi
}

for program in $programs; do
    [ -n "$(pin "$program")" ] || fail "unknown program $program"
done
# shellcheck disable=SC2086 # one word per program
if select_missing $known; then
    command -v go >/dev/null || fail "Go is needed to build$todo (or give KUBEBUILDER_ASSETS and BERTH_CONTROLPLANE_DIR)"
    command -v flock >/dev/null || fail "flock (util-linux) is needed so that parallel runs build once"
    mkdir -p "$out"
    exec 9>"$out/.lock"
    if ! flock -n 9; then
        say "waiting for another build in $out"
        flock 9
    fi
    build_all
fi
echo "$out"
