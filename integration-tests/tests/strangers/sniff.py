"""Hears all TCP traffic of its network namespace and tells which of some names were in it.

    sniff.py NAME...

Says "listening" when it does, and listens until its standard input ends. Then it says the last name aloud, to know that
it hears, and prints an object of JSON: how many packets there were, how many the kernel dropped because this was too
slow, and how often each name was heard. A name is found also where it lies across the end of a packet.
"""

import json
import select
import socket
import struct
import sys
from collections import defaultdict

ETH_P_ALL = 3
SOL_PACKET, PACKET_STATISTICS = 263, 6
SO_RCVBUFFORCE = 33
BUFFER = 1 << 30
OUTGOING = 4


def segment(packet):
    """Flow and payload of a TCP packet, or None."""
    kind = int.from_bytes(packet[12:14])
    if kind == 0x0800 and packet[23] == 6:
        start, addresses = 14 + (packet[14] & 15) * 4, packet[26:34]
        length = int.from_bytes(packet[16:18])
        end = 14 + length if length else len(packet)
    elif kind == 0x86DD and packet[20] == 6:
        start, addresses, end = 54, packet[22:54], len(packet)
    else:
        return None
    payload = packet[start + (packet[start + 12] >> 4) * 4 : end]
    return addresses + packet[start : start + 4], payload


def say_aloud(name):
    """Sends a name over the loopback interface."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with socket.create_connection(listener.getsockname()) as sender:
            sender.sendall(name)
            with listener.accept()[0] as receiver:
                receiver.recv(len(name), socket.MSG_WAITALL)


def main():
    names = [name.encode() for name in sys.argv[1:]]
    longest = max(map(len, names))
    sniffer = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    sniffer.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER)
    print("listening", flush=True)
    heard = {name.decode(): 0 for name in names}
    ends = defaultdict(bytes)
    packets = 0
    ending = False
    while True:
        # What is in the buffer when it is told to end is still looked at.
        ready, _, _ = select.select([sniffer] + ([] if ending else [sys.stdin]), [], [], 0.5 if ending else None)
        if not ready:
            break
        if sys.stdin in ready and not sys.stdin.readline():
            ending = True
            say_aloud(names[-1])
        if sniffer not in ready:
            continue
        packet, address = sniffer.recvfrom(1 << 18)
        # On the loopback interface everything passes twice.
        if address[2] == OUTGOING and address[0] == "lo":
            continue
        packets += 1
        found = segment(packet) if len(packet) > 54 else None
        if not found or not found[1]:
            continue
        flow, payload = found
        end = ends[flow]
        text = end + payload
        for name in names:
            if name in text:
                # Not those that were in the end already.
                heard[name.decode()] += text.count(name) - end.count(name)
        ends[flow] = text[-(longest - 1) :]
    dropped = struct.unpack("II", sniffer.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))[1]
    print(json.dumps({"packets": packets, "dropped": dropped, "heard": heard}))


main()
