#!/usr/bin/env bash
# DuckDB for tests that ask it the same questions, from its Python package.
#
#   duckdb.sh install   downloads what is needed, once, into ${XDG_CACHE_HOME:-~/.cache}/voxelflow/servers
#   duckdb.sh serve     answers queries: a JSON line with `setup` (statements) or `query` comes on standard input, a JSON
#                       line with `rows` (of texts) or `error` goes to standard output, until standard input ends
set -euo pipefail

version=1.4.1
home="${XDG_CACHE_HOME:-$HOME/.cache}/voxelflow/servers"
python="$home/duckdb-$version/bin/python"

install() {
    mkdir -p "$home"
    exec 9> "$home/duckdb.lock"
    flock 9
    if ! "$python" -c 'import duckdb' 2> /dev/null; then
        rm -rf "$home/duckdb-$version"
        python3 -m venv "$home/duckdb-$version" >&2
        "$home/duckdb-$version/bin/pip" install -q --disable-pip-version-check --only-binary :all: \
            "duckdb==$version" >&2
    fi
    exec 9>&-
}

case "${1:-}" in
    install) install ;;
    serve)
        install
        exec "$python" "$(dirname "${BASH_SOURCE[0]}")/duckdb_lines.py"
        ;;
    *) echo "usage: duckdb.sh install|serve" >&2; exit 2 ;;
esac
