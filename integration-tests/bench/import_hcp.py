"""The import of images of the size of a resting run of the HCP (91x109x91x1200 float32): peak memory, that it does not
grow from image to image, and the time beside that of inflating alone.

    python integration-tests/bench/import_hcp.py VOXELFLOW_BINARY [--volumes 1200] [--runs 10] [--memory 1.5GB]
                                                 [--mask auto|none|FILE] [--folder DIR]

The image is made by `voxelflow synth bold` (0.98 GB for 1200 volumes) and repeated by hard links. The folder needs room
for it, for its series, twice (0.9 GB an image), and for a temporary file.
"""

import argparse
import os
import shutil
import subprocess
import tempfile
import threading
import time
from pathlib import Path

PIPELINE = """
CREATE EXTERNAL TABLE bold STORED AS NIFTI LOCATION '{images}' OPTIONS (mask '{mask}');
CREATE TABLE series AS
  SELECT * FROM clean(bold, detrend => true, standardize => 'zscore_sample', high_pass => 0.008);
"""


class Ended:
    """A process that has ended: wall-clock and processor seconds, peak resident MiB."""

    def __init__(self, command, watch=None):
        start = time.perf_counter()
        process = subprocess.Popen([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        done = threading.Event()
        watcher = threading.Thread(target=watch or (lambda *_: None), args=(process.pid, done))
        watcher.start()
        output = process.stdout.read().decode(errors="replace")
        _, status, usage = os.wait4(process.pid, 0)
        done.set(), watcher.join()
        if status != 0:
            raise SystemExit(f"failed: {' '.join(map(str, command))}\n{output}")
        self.wall = time.perf_counter() - start
        self.cpu = usage.ru_utime + usage.ru_stime
        self.peak = usage.ru_maxrss / 1024

    def __str__(self):
        return f"{self.wall:7.1f} s, of processors {self.cpu:7.1f} s, peak {self.peak:6.0f} MiB"


def resident(pid):
    """Resident MiB of a process now; 0 once it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024


def after_each(out, told):
    """Notes the resident memory whenever one more image is finished."""

    def watch(pid, done):
        while not done.wait(0.05):
            finished = len(list(Path(out).glob("tables/series/.*.partial-*/notes/[0-9]*.json")))
            if finished > len(told):
                told.extend([resident(pid)] * (finished - len(told)))

    return watch


def make_image(binary, folder, volumes, shape):
    image = folder / f"once/sub-01_task-motor_desc-{shape.replace(',', 'x')}x{volumes}_bold.nii.gz"
    if not image.exists():
        image.parent.mkdir(parents=True, exist_ok=True)
        command = [binary, "synth", "bold", "--shape", shape, "--volumes", volumes, "--out", image]
        print(f"synth:              {Ended(command)}")
    return image


def bring_in(binary, folder, image, count, mask, memory):
    """Imports `count` links to the image; gives how it ended, and the memory after each."""
    links, out = folder / f"links-{count}", folder / f"out-{count}"
    for old in (links, out):
        shutil.rmtree(old, ignore_errors=True)
    links.mkdir(parents=True)
    for run in range(1, count + 1):
        link = links / f"sub-01_task-motor_run-{run:02}_bold.nii.gz"
        os.link(image, link)
        # The repetition time is in the sidecar too.
        os.link(image.with_name(image.name.replace(".nii.gz", ".json")), link.with_name(link.name.replace(".nii.gz", ".json")))
    pipeline = folder / f"import-{count}.vf"
    pipeline.write_text(PIPELINE.format(images=f"{links}/*_bold.nii.gz", mask=mask))
    told = []
    ended = Ended([binary, "run", pipeline, "--out", out, "--memory", memory], after_each(out, told))
    shutil.rmtree(out)
    return ended, told


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("binary")
    options.add_argument("--shape", default="91,109,91")
    options.add_argument("--volumes", type=int, default=1200)
    options.add_argument("--runs", type=int, default=10)
    options.add_argument("--memory", default="1.5GB")
    options.add_argument("--mask", default="auto")
    options.add_argument("--folder", type=Path)
    given = options.parse_args()
    binary = Path(given.binary).resolve()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (given.folder or Path(temporary)).resolve()
        image = make_image(binary, folder, given.volumes, given.shape)
        inflated = 4 * given.volumes
        for length in map(int, given.shape.split(",")):
            inflated *= length
        print(f"{image.name}: {image.stat().st_size / 1e9:.2f} GB, inflated {inflated / 1e9:.2f} GB; --memory {given.memory}")
        gzip = Ended(["gzip", "-t", image])
        print(f"gzip -t:            {gzip}")
        inspect = Ended([binary, "inspect", image])
        print(f"voxelflow inspect:  {inspect}   (inflates with zlib-rs and looks at every value)")
        one, _ = bring_in(binary, folder, image, 1, given.mask, given.memory)
        print(f"import of 1:        {one}   {inflated / one.wall / 1e6:.0f} MB/s of inflated values")
        share = lambda peer: f"{one.wall / peer.wall:.2f} times the time, {one.cpu / peer.cpu:.2f} times the processors'"
        print(f"  against gzip -t: {share(gzip)}; against inspect: {share(inspect)}")
        if given.runs > 1:
            many, told = bring_in(binary, folder, image, given.runs, given.mask, given.memory)
            print(f"import of {given.runs:<2}:       {many}   {given.runs * inflated / many.wall / 1e6:.0f} MB/s")
            print(f"  resident after each, MiB: {' '.join(f'{mib:.0f}' for mib in told)}")
            print(f"  peak of {given.runs} over peak of 1: {many.peak / one.peak:.2f}")


if __name__ == "__main__":
    main()
