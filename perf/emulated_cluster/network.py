"""Links of the emulated cluster: a bridge in the head's network namespace, a veth pair to each node, tbf on both ends.

    node 0 [eth0 10.77.0.1] ====== [p0]  head: bridge eth0, 10.77.0.254, itself unshaped
    node 1 [eth0 10.77.0.2] ====== [p1]
                 tbf: node -> head   tbf: head -> node

Nothing is created in the machine's own network namespace, so addresses and names can never collide with it, nor with
another cluster's.
"""

import re
import subprocess

SUBNET = "10.77.0"
HEAD_ADDRESS = f"{SUBNET}.254"

# bbr, the default of some kernels, paces badly on shaped veth links; reno may be set in any namespace.
_CONGESTION_CONTROL = "reno"
# Sockets capped at 512 KiB and a 64 MB queue: nothing is ever dropped, like a lossless fabric. A 1 MB queue, a shallow
# switch, gives incast losses and 200 ms retransmission timeouts instead.
_SOCKET_BYTES = 512 << 10
_QUEUE = "64m"
# At least one 64 KiB GSO super-packet, so that tbf need not cut packets in software.
_BURST = "128k"


def address(node):
    return f"{SUBNET}.{node + 1}"


def node_name(node):
    return f"node{node}"


MAX_NODES = 250


def check_nodes(nodes):
    if not 1 <= nodes <= MAX_NODES:
        raise ValueError(f"{nodes} nodes: 1 to {MAX_NODES} are possible")
    return nodes


def check_rate(rate):
    """A rate as tc takes it ("1gbit", "500mbit"), or "none" for links as fast as the machine."""
    if rate != "none" and not re.fullmatch(r"[1-9][0-9]*(\.[0-9]+)?[kmg]bit", rate):
        raise ValueError(f"'{rate}' is not a rate: write 1gbit, 500mbit or none")
    return rate


def hosts_file(nodes):
    lines = ["127.0.0.1 localhost", f"{HEAD_ADDRESS} head"]
    lines += [f"{address(node)} {node_name(node)}" for node in range(nodes)]
    return "\n".join(lines) + "\n"


def _batch(tool, lines):
    result = subprocess.run(
        [tool, "-batch", "-"], input="\n".join(lines) + "\n", text=True, capture_output=True
    )
    if result.returncode != 0:
        raise OSError(f"{tool}: {result.stderr.strip() or 'failed'} (while running: {'; '.join(lines)})")


def _shape(device, rate):
    if rate == "none":
        return f"qdisc replace dev {device} root pfifo limit 10000"
    return f"qdisc replace dev {device} root tbf rate {rate} burst {_BURST} limit {_QUEUE}"


def build_switch():
    """In the head's namespace. The bridge is called eth0 too, so that launchers find the same name everywhere."""
    _batch(
        "ip",
        [
            "link set lo up",
            "link add eth0 type bridge",
            "link set eth0 up",
            f"addr add {HEAD_ADDRESS}/24 dev eth0",
        ],
    )


def connect_nodes(pids):
    """In the head's namespace: a link to each node, given the process numbers of the nodes' first processes."""
    lines = []
    for node, pid in enumerate(pids):
        lines += [
            f"link add p{node} type veth peer name eth0 netns {pid}",
            f"link set p{node} master eth0 up",
        ]
    _batch("ip", lines)


def shape_head(nodes, rate):
    """In the head's namespace: what flows towards the nodes."""
    _batch("tc", [_shape(f"p{node}", rate) for node in range(nodes)])


def shape_node(rate):
    """In a node's namespace: what flows out of it."""
    _batch("tc", [_shape("eth0", rate)])


def configure_node(node, rate):
    """In a node's namespace, once it is connected."""
    _batch("ip", ["link set lo up", "link set eth0 up", f"addr add {address(node)}/24 dev eth0"])
    for name, value in (
        ("tcp_congestion_control", _CONGESTION_CONTROL),
        ("tcp_wmem", f"4096 65536 {_SOCKET_BYTES}"),
        ("tcp_rmem", f"4096 131072 {_SOCKET_BYTES}"),
    ):
        with open(f"/proc/sys/net/ipv4/{name}", "w") as file:
            file.write(value)
    shape_node(rate)
