#!/usr/bin/env bash
# nilearn and scikit-learn for tests that compare their numbers, from their Python packages.
#
#   nilearn.sh install      downloads what is needed, once, into ${XDG_CACHE_HOME:-~/.cache}/voxelflow/servers
#   nilearn.sh python ...   runs that Python, 3.11 or later, with these arguments
set -euo pipefail

version=0.14.1
home="${XDG_CACHE_HOME:-$HOME/.cache}/voxelflow/servers"
python="$home/nilearn-$version/bin/python"
packages=(
    "nilearn==$version" scikit-learn==1.9.1 numpy==2.4.6 scipy==1.17.1 pandas==3.1.1 nibabel==5.4.2 pyarrow==26.0.1
)

install() {
    mkdir -p "$home"
    exec 9> "$home/nilearn.lock"
    flock 9
    # Packages that came whole leave a mark with their names, so that other versions are another installation.
    if [ "$(cat "$home/nilearn-$version/packages" 2> /dev/null)" != "${packages[*]}" ]; then
        rm -rf "$home/nilearn-$version"
        python3 -m venv "$home/nilearn-$version" >&2
        "$home/nilearn-$version/bin/pip" install -q --disable-pip-version-check --only-binary :all: "${packages[@]}" >&2
        echo "${packages[*]}" > "$home/nilearn-$version/packages"
    fi
    exec 9>&-
}

case "${1:-}" in
    install) install ;;
    python)
        install
        shift
        exec "$python" "$@"
        ;;
    *) echo "usage: nilearn.sh install|python ..." >&2; exit 2 ;;
esac
