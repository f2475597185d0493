#!/usr/bin/env bash
# haxby.sh SOURCE: makes examples/data/haxby, the BIDS folders of example 03, of pieces of Haxby et al. (2001): one slice
# through ventral temporal cortex, 12 runs of 121 volumes, in which one subject looked at eight categories of things.
# SOURCE is the folder mvpa2/data/haxby2001 of PyMVPA (github.com/PyMVPA/PyMVPA, also in its sdist on PyPI).
set -euo pipefail
source=${1:?haxby.sh SOURCE: the folder mvpa2/data/haxby2001 of PyMVPA}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
target="$here/haxby"
exec 9< "$here"
flock 9
[ -e "$target/complete" ] && exit 0

work=$(mktemp -d "$here/.haxby-XXXXXX")
trap 'rm -rf "$work"' EXIT
images="$work/haxby/derivatives/sub-001/func"
events="$work/haxby/raw/sub-001/func"
mkdir -p "$images" "$events"
echo '{"Name": "Haxby 2001, one slice", "BIDSVersion": "1.9.0", "DatasetType": "derivative"}' \
    > "$work/haxby/derivatives/dataset_description.json"
echo '{"Name": "Haxby 2001", "BIDSVersion": "1.9.0"}' > "$work/haxby/raw/dataset_description.json"
for run in $(seq -w 12); do
    from="$source/sub001/BOLD/task001_run0$run"
    stem="sub-001_task-objectviewing_run-${run}"
    cp "$from/bold_1slice.nii.gz" "$images/${stem}_space-native_desc-preproc_bold.nii.gz"
    echo '{"RepetitionTime": 2.5}' > "$images/${stem}_space-native_desc-preproc_bold.json"
    cp "$from/bold_events.tsv" "$events/${stem}_events.tsv"
done
touch "$work/haxby/complete"
rm -rf "$target"
mv "$work/haxby" "$target"
