"""The wire of data-parallel training: R ranks in network namespaces of one machine, links of 1 Gbit/s both ways, real
rounds with the parameters of the published autoencoder, *compute replaced by waiting for a measured step time*.

    cargo build -p voxelflow-sync --example replayed_step && cargo build -p voxelflow-nn --example step_speed
    sudo python integration-tests/bench/scaling_wire.py [--ranks 2,4] [--simulate 8,13] [--check 8] [--scale 1]
        [--cpu-step SECONDS] [--card-step 0.0067] [--binary target/debug/voxelflow] [--json scaling_wire.json]

Two steps are replayed: one thread of a processor with a minibatch of 1600 (measured here by `step_speed` unless
--cpu-step gives it), and a card's (--card-step). The number of local steps H is what `local_steps => 'auto'` takes. A
rate of 1 is that of one process that only computes.

Rows beyond --ranks are *simulated*: the clock of a round is the slowest of R sums of H jittered steps, then
communication of latency + bytes / rate, both fitted on the measured rows (and compared with --check, measured too);
bytes are those of the formula, checked against those that went out. With --binary the loss of each row's H is set
against that of `sync` after equal numbers of samples, on a small autoencoder (loss_by_mode.py).

--scale S makes links S times slower and steps S times longer, and divides the measured times by S: for machines whose
cores do not carry so many links. What ranks compute besides (update rules, TLS) then counts for 1/S.

Needs root (namespaces, `tc`); two cores carry four ranks at 1 Gbit/s without TLS. Namespaces and processes are removed
however it ends.
"""

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PARAMETERS = 6_020_381
MINIBATCH = 1600


def run(*words, **options):
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise SystemExit(f"failed: {' '.join(map(str, words))}\n{done.stdout}{done.stderr}")
    return done.stdout


class Network:
    """A switch and a namespace for each rank; every link carries `megabits` each way."""

    def __init__(self, ranks, megabits):
        self.name, self.ranks, self.megabits = f"vfl{os.getpid()}", ranks, megabits
        self.switch = f"{self.name}-s"

    def rank(self, rank):
        return f"{self.name}-{rank}", f"10.77.0.{rank + 2}"

    def __enter__(self):
        try:
            self.build()
        except BaseException:
            self.__exit__()
            raise
        return self

    def build(self):
        run("ip", "netns", "add", self.switch)
        self.within(self.switch, "ip", "link", "add", "br0", "type", "bridge")
        self.within(self.switch, "ip", "address", "add", "10.77.0.1/24", "dev", "br0")
        for link in ("lo", "br0"):
            self.within(self.switch, "ip", "link", "set", "dev", link, "up")
        for rank in range(self.ranks):
            (namespace, address), port = self.rank(rank), f"p{rank}"
            run("ip", "netns", "add", namespace)
            run("ip", "link", "add", port, "netns", self.switch, "type", "veth", "peer", "name", "eth0", "netns", namespace)
            self.within(self.switch, "ip", "link", "set", "dev", port, "master", "br0", "up")
            self.within(namespace, "ip", "address", "add", f"{address}/24", "dev", "eth0")
            for link in ("lo", "eth0"):
                self.within(namespace, "ip", "link", "set", "dev", link, "up")
            self.limit(self.switch, port)
            self.limit(namespace, "eth0")

    def limit(self, namespace, link):
        # A burst of one timer tick of older kernels; a queue of 20 ms, as of a switch with large buffers.
        rate = f"{self.megabits * 1000:.0f}kbit"
        self.within(
            namespace, "tc", "qdisc", "add", "dev", link, "root", "tbf", "rate", rate, "burst", "128kb", "latency", "20ms"
        )

    @staticmethod
    def within(namespace, *words):
        run("ip", "netns", "exec", namespace, *words)

    def __exit__(self, *_):
        names = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout.split("\n")
        for name in (line.split(" ")[0] for line in names):
            if name.startswith(f"{self.name}-"):
                subprocess.run(["ip", "netns", "delete", name], check=False)


def gang(network, example, options, ranks, step, local_steps, rounds):
    """One gang over `network`; what its first rank says."""
    processes = []
    with tempfile.TemporaryDirectory() as folder:
        invitation = Path(folder) / "invitation"

        def start(namespace, *words):
            command = ["ip", "netns", "exec", namespace, example, *map(str, words), "--invitation", invitation]
            environment = dict(os.environ, TOKIO_WORKER_THREADS="1")
            processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment))
            return processes[-1]

        try:
            tls = ["--tls", "yes"] if options.tls else []
            start(
                network.switch, "host", "--bind", "10.77.0.1", "--ranks", ranks, "--codec", options.codec,
                "--local-steps", local_steps, *tls,
            )
            common = [
                "--step", step, "--jitter", options.jitter, "--minibatch", MINIBATCH, "--rounds", rounds,
                # What `auto` measures, and a round of what came of it.
                "--warm-up", 15 if local_steps == "auto" else 2, "--parameters", PARAMETERS,
            ]
            started = []
            for rank in range(ranks):
                namespace, address = network.rank(rank)
                started.append(start(namespace, "rank", "--rank", rank, "--bind", address, *common))
            line = started[0].communicate(timeout=options.deadline)[0]
            for process in processes:
                if process.wait(timeout=60) != 0:
                    raise SystemExit(f"a process of a gang of {ranks} ranks failed: {process.args}")
            return json.loads(line)
        finally:
            for process in processes:
                if process.poll() is None:
                    process.kill()
                process.wait()


def measure(options, ranks, name, step):
    """Measured row: times as if links and steps had not been scaled."""
    scale = options.scale
    with Network(ranks, options.megabits / scale) as network:
        row = gang(network, options.example, options, ranks, step * scale, "auto", options.rounds)
    for key in ("round_seconds", "compute_replayed", "update", "communicate", "wait", "step_seconds"):
        row[key] /= scale
    for key in ("rounds_per_second", "series_per_second"):
        row[key] *= scale
    row["communicate_by_round"] = [seconds / scale for seconds in row["communicate_by_round"]]
    row.update(step=name, source="measured" if scale == 1 else f"measured at 1/{scale:g} of speed", scale=scale)
    return row


def bytes_a_round(ranks, codec):
    """Sent by a rank: gradients to the other shards; parameters of its shard to the others, and its update to the backup."""
    shard, gradient = PARAMETERS / ranks, {"bf16": 2, "f32": 4}[codec]
    return (ranks - 1) * shard * (gradient + 4) + shard * 4


def fit(rows, codec):
    """Latency in seconds and rate in bytes/s of a round, least squares; one measured row gives the rate alone."""
    points = [(bytes_a_round(row["ranks"], codec), statistics.median(row["communicate_by_round"])) for row in rows]
    mean_bytes, mean_seconds = (statistics.mean(p[i] for p in points) for i in (0, 1))
    spread = sum((b - mean_bytes) ** 2 for b, _ in points)
    slope = sum((b - mean_bytes) * (s - mean_seconds) for b, s in points) / spread if spread else 0.0
    latency = mean_seconds - slope * mean_bytes
    if slope <= 0 or latency < 0:
        # Noise of the two rows: no latency then.
        slope, latency = mean_seconds / mean_bytes, 0.0
    return latency, 1 / slope


def choose(example, rounds):
    return int(run(example, "choose", input=json.dumps(rounds)))


def simulate(options, name, ranks, step, update, model, rounds=400):
    """Simulated row: `auto` chooses from ten simulated rounds, then `rounds` of them go by."""
    latency, rate = model
    draw, communicate = random.Random(13 * ranks), latency + bytes_a_round(ranks, options.codec) / rate
    jittered = lambda: max(0.0, step * (1 + options.jitter * draw.gauss(0, 1)))
    measured = []
    for _ in range(10):
        computes = [jittered() for _ in range(ranks)]
        measured.append([[c, max(computes) - c + communicate] for c in computes])
    h = choose(options.example, measured)
    compute, slowest = 0.0, 0.0
    for _ in range(rounds):
        sums = [sum(jittered() for _ in range(h)) for _ in range(ranks)]
        compute, slowest = compute + statistics.mean(sums) / rounds, slowest + max(sums) / rounds
    # The last of H steps is the round itself.
    update = update * (h - 1)
    seconds = slowest + update + communicate
    return {
        "ranks": ranks, "step": name, "source": "simulated", "local_steps": h, "step_seconds": step,
        "jitter": options.jitter, "round_seconds": seconds, "compute_replayed": compute, "update": update,
        "communicate": communicate, "wait": slowest - compute, "series_per_second": ranks * h * MINIBATCH / seconds,
        "bytes_sent_a_round_by_the_busiest_rank": bytes_a_round(ranks, options.codec), "scale": 1,
    }


class Losses:
    """Held-out loss after equal numbers of samples, by ranks and local steps."""

    def __init__(self, binary, seeds):
        self.binary, self.seeds, self.known = binary, seeds, {}

    def of(self, ranks, h):
        if self.binary is None:
            return None
        if (ranks, h) not in self.known:
            from loss_by_mode import command, losses

            with tempfile.TemporaryDirectory() as folder:
                folder = Path(folder)
                words = ["synth", "hcp", "--subjects", 2, "--voxels", 1200, "--time-points", 107, "--out", folder]
                command(self.binary, *words)
                mode = f"local_steps => {h}, " if h > 1 else ""
                ends = [losses(self.binary, folder, folder / "series", mode, ranks, s)[0][-1] for s in range(self.seeds)]
            self.known[ranks, h] = statistics.mean(ends)
        return self.known[ranks, h]


def show(row, losses):
    alone = MINIBATCH / row["step_seconds"]
    row["speed_up"] = row["series_per_second"] / alone
    row["efficiency"] = row["speed_up"] / row["ranks"]
    row["loss"], sync = losses.of(row["ranks"], row["local_steps"]), losses.of(row["ranks"], 1)
    row["loss_against_sync"] = row["loss"] / sync - 1 if sync else None
    whole = row["round_seconds"]
    split = "  ".join(
        f"{label} {row[key] / whole:4.0%}"
        for label, key in (("compute", "compute_replayed"), ("update", "update"), ("communicate", "communicate"), ("wait", "wait"))
    )
    loss = f"loss {row['loss']:.4f} ({row['loss_against_sync']:+.1%} of sync)" if sync else "loss not asked for"
    print(
        f"  {row['step']:4} R {row['ranks']:>2}  {row['source']:10}  H {row['local_steps']:>3}  {whole:7.3f} s a round  "
        f"{row['series_per_second']:11.0f} series/s  speed-up {row['speed_up']:5.2f}  efficiency {row['efficiency']:4.2f}  "
        f"{split}  {row['bytes_sent_a_round_by_the_busiest_rank'] / 1e6:.1f} MB sent  {loss}",
        flush=True,
    )
    return row


def cpu_step(options):
    """Seconds of a step of 1600 series on one thread, measured."""
    said = run(options.step_speed, MINIBATCH, 3, env=dict(os.environ, RAYON_NUM_THREADS="1"))
    return float(said.split(" ms a step")[0].rsplit(" ", 1)[1]) / 1000


def flags():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = lambda text: [int(n) for n in text.split(",") if n]
    debug = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug"
    parser.add_argument("--ranks", type=numbers, default=[2, 4], help="measured; the model is fitted on them")
    parser.add_argument("--check", type=numbers, default=[], help="measured too, to compare the model with")
    parser.add_argument("--simulate", type=numbers, default=[8, 13])
    parser.add_argument("--scale", type=float, default=1, help="links so many times slower, steps as many times longer")
    parser.add_argument("--megabits", type=float, default=1000, help="of every link, each way")
    parser.add_argument("--cpu-step", type=float, help="seconds of a step of 1600 series on one thread")
    parser.add_argument("--card-step", type=float, default=0.0067, help="seconds of a step of 1600 series on a card")
    parser.add_argument("--jitter", type=float, default=0.05, help="standard deviation of a step's time, relative")
    parser.add_argument("--codec", choices=["bf16", "f32"], default="bf16")
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--deadline", type=float, default=900, help="seconds that one gang may take")
    parser.add_argument("--example", type=Path, default=debug / "examples" / "replayed_step")
    parser.add_argument("--step-speed", type=Path, default=debug / "examples" / "step_speed")
    parser.add_argument("--binary", type=Path, help="the program, for the loss of each row")
    parser.add_argument("--seeds", type=int, default=3, help="of each loss")
    parser.add_argument("--json", type=Path, default=Path("scaling_wire.json"))
    return parser.parse_args()


def main():
    options = flags()
    if os.geteuid() != 0:
        raise SystemExit("network namespaces and tc need root: run this with sudo")

    def ended(number, _):
        raise SystemExit(f"ended by {signal.Signals(number).name}")

    # So that what is cleaned up is cleaned up then, too.
    signal.signal(signal.SIGTERM, ended)
    steps = {"cpu": options.cpu_step or cpu_step(options), "card": options.card_step}
    losses, began, result = Losses(options.binary, options.seeds), time.perf_counter(), {"rows": [], "fits": {}}
    print(
        f"links of {options.megabits:g} Mbit/s each way, {options.codec} gradients, {'TLS' if options.tls else 'plain'}; "
        f"{MINIBATCH} series a step; compute is replaced by waiting: cpu {steps['cpu']:.3f} s, card {steps['card']:.4f} s "
        f"a step, ±{options.jitter:.0%}",
        flush=True,
    )
    for name, step in steps.items():
        rows = [show(measure(options, ranks, name, step), losses) for ranks in options.ranks]
        model = fit(rows, options.codec)
        # Of the fewest ranks, that have a core each.
        local = [row for row in rows if row["local_steps"] > 1][:1]
        update = sum(row["update"] / (row["local_steps"] - 1) for row in local)
        print(
            f"       fitted on R {', '.join(map(str, options.ranks))}: a round takes {model[0] * 1e3:.1f} ms and "
            f"{model[1] / 1e6:.1f} MB/s; an update on a rank {update * 1e3:.1f} ms",
            flush=True,
        )
        result["fits"][name] = {"latency_seconds": model[0], "bytes_per_second": model[1], "update_seconds": update}
        for ranks in options.check:
            row = show(measure(options, ranks, name, step), losses)
            expected = simulate(options, name, ranks, step, update, model)
            off = expected["round_seconds"] / expected["local_steps"] / (row["round_seconds"] / row["local_steps"]) - 1
            print(f"       the model says {off:+.1%} of what R {ranks} took for a step", flush=True)
            rows.append(row)
        rows += [show(simulate(options, name, ranks, step, update, model), losses) for ranks in options.simulate]
        result["rows"] += rows
    result["seconds"] = time.perf_counter() - began
    options.json.write_text(json.dumps(result, indent=2) + "\n")
    print(f"{result['seconds']:.0f} s; {options.json}")


if __name__ == "__main__":
    main()
