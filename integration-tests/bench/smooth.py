"""Smoothing of volumes: ml/signal beside scipy's gaussian_filter1d, which nilearn.image.smooth_img calls.

    cargo build -p voxelflow-signal --example smooth_bench
    python integration-tests/bench/smooth.py target/debug/examples/smooth_bench [PAIRS]
"""

import statistics
import subprocess
import sys
import time

import numpy as np
from scipy.ndimage import gaussian_filter1d

SHAPE, VOXEL, FWHM, VOLUMES = (80, 80, 35), 3.0, 6.0, 40


def scipy_seconds():
    """Seconds per volume, on one core, with the axis order that nilearn calls the most efficient."""
    sigma = FWHM / (np.sqrt(8 * np.log(2)) * VOXEL)
    run = [np.random.default_rng(t).uniform(800, 1800, SHAPE).astype(np.float32) for t in range(VOLUMES)]
    start = time.perf_counter()
    for volume in run:
        for axis in range(3):
            gaussian_filter1d(volume, sigma, output=volume, axis=axis)
    return (time.perf_counter() - start) / VOLUMES


def our_seconds(binary):
    arguments = [*map(str, SHAPE), str(VOXEL), str(FWHM), str(VOLUMES)]
    output = subprocess.run([binary, *arguments], check=True, capture_output=True, text=True).stdout
    return tuple(map(float, output.split()))


def main():
    binary, pairs = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 7
    our_seconds(binary), scipy_seconds()
    ours, theirs = [], []
    for _ in range(pairs):
        ours.append(our_seconds(binary))
        theirs.append(scipy_seconds())
    print(f"{SHAPE} voxels of {VOXEL} mm, FWHM {FWHM} mm, {pairs} pairs, median ms per volume")
    peer = statistics.median(theirs)
    print(f"  scipy, one core       {1e3 * peer:8.2f}")
    for name, column in [("ours, one core", 0), ("ours, all cores", 1)]:
        ratio = statistics.median(o[column] / t for o, t in zip(ours, theirs))
        print(f"  {name:20}  {1e3 * statistics.median(o[column] for o in ours):8.2f}   ratio ours/scipy {ratio:.3f}")


main()
