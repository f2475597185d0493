"""Bandwidth of tensors between ranks, beside iperf3: push and fetch of 24 MB over loopback with 1, 2 and 4
connections. Both directions are counted alike: of iperf3, one run each way, put together as the harmonic mean.

    cargo build -p voxelflow-sync --example wire_bench && python integration-tests/bench/wire.py [RUNS]
"""

import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys

STREAMS = (1, 2, 4)
SECONDS = 3
CYCLES = 150


def iperf3(streams, reverse):
    """Bytes received per second, in units of 1e9."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    server = subprocess.Popen(
        ["iperf3", "-s", "-1", "-B", "127.0.0.1", "-p", port, "--forceflush"], stdout=subprocess.PIPE, text=True
    )
    while "listening" not in server.stdout.readline():
        if server.poll() is not None:
            raise SystemExit("the iperf3 server did not start")
    command = ["iperf3", "-c", "127.0.0.1", "-p", port, "-P", str(streams), "-t", str(SECONDS), "-l", "1M", "-J"]
    result = json.loads(subprocess.run(command + ["-R"] * reverse, capture_output=True, check=True).stdout)
    server.communicate()
    return result["end"]["sum_received"]["bits_per_second"] / 8e9


def main():
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    root = pathlib.Path(__file__).resolve().parents[2]
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", root / "target"))
    bench = target / "debug" / "examples" / "wire_bench"
    measured = {}
    for run in range(runs):
        for streams in STREAMS:
            ways = iperf3(streams, False), iperf3(streams, True)
            measured.setdefault(("iperf3", "plain", streams), []).append(statistics.harmonic_mean(ways))
        lines = subprocess.run([bench, str(CYCLES)], capture_output=True, check=True, text=True).stdout
        for line in map(json.loads, lines.splitlines()):
            key = line["transport"], line["security"], line["streams"]
            measured.setdefault(key, []).append(line["gigabytes_per_second"])
        print(f"run {run + 1} of {runs}, load {os.getloadavg()[0]:.1f}", file=sys.stderr)

    print(f"GB/s over loopback, median [min … max] of {runs} runs, {os.cpu_count()} CPUs; ratio: median over pairs")
    for (transport, security, streams), values in sorted(measured.items(), key=lambda item: item[0][2]):
        peer = measured["iperf3", "plain", streams]
        ratio = statistics.median(ours / theirs for ours, theirs in zip(values, peer))
        spread = f"{statistics.median(values):6.2f} [{min(values):.2f} … {max(values):.2f}]"
        print(f"  {streams} connections  {transport:7} {security:6} {spread:24} ratio to iperf3 {ratio:.2f}")


if __name__ == "__main__":
    main()
