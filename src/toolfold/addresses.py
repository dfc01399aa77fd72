"""What a host in an address leads to, by how it is written alone: nothing is resolved here.

Whoever fetches what a stranger's metadata points at resolves names besides (`auth/fetch.py`).
"""

import re
import socket
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Literal

# Where clouds hand out the credentials of the machine itself.
_METADATA = frozenset({"168.63.129.16", "100.100.100.200", "169.254.169.254", "169.254.170.2", "fd00:ec2::254"})
# IPv6 addresses that stand for an IPv4 one, besides those that `ipaddress` knows.
_WRAPPED = (ip_network("64:ff9b::/96"), ip_network("::/96"))
# All others of IPv6 are for one site, one machine or no use at all, and `ipaddress` takes some of them for global.
_GLOBAL_UNICAST = ip_network("2000::/3")
# Names without a dot, and those that no name server outside knows.
_INNER_NAME = re.compile(r"(?:[^.]+|.+\.(?:local|localhost|internal|lan|home\.arpa))\.?", re.IGNORECASE)


def host_kind(host: str) -> Literal["metadata", "inner", ""]:
    """`metadata`: it hands out a machine's own credentials; `inner`: it is not on the open internet. A name that may
    lead anywhere is neither."""
    text = host.strip("[]")
    try:
        kind = address_kind(text)
    except ValueError:
        try:  # `2852039166`, `0xa9fea9fe` and `169.254.43518` are addresses, too
            kind = address_kind(str(IPv4Address(socket.inet_aton(text))))
        except OSError:
            return "inner" if _INNER_NAME.fullmatch(text) else ""
    return "metadata" if kind == "metadata" else "inner" if kind else ""


def address_kind(address: str) -> str:
    """What makes an address one that is not on the open internet; empty where nothing does. Raises `ValueError`."""
    ip = _unwrapped(ip_address(address.partition("%")[0]))
    if str(ip) in _METADATA:
        return "metadata"
    for kind in ("unspecified", "loopback", "multicast", "link_local"):
        if getattr(ip, f"is_{kind}"):
            return kind.replace("_", "-")
    return "" if ip.is_global and (ip.version == 4 or ip in _GLOBAL_UNICAST) else "private"


def _unwrapped(ip: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """The IPv4 address that an IPv6 one stands for."""
    if isinstance(ip, IPv4Address):
        return ip
    if int(ip) > 1 and any(ip in network for network in _WRAPPED):
        return IPv4Address(int(ip) & 0xFFFFFFFF)
    return ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else ip)
