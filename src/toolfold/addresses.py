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
# Names without a dot, and those that no name server outside knows.
_INNER_NAME = re.compile(r"(?:[^.]+|.+\.(?:local|localhost|internal|lan|home\.arpa))\.?", re.IGNORECASE)


def host_kind(host: str) -> Literal["metadata", "inner", ""]:
    """`metadata`: it hands out a machine's own credentials; `inner`: it is not on the open internet. A name that may
    lead anywhere is neither."""
    text = host.strip("[]").partition("%")[0]
    try:
        ip = _unwrapped(ip_address(text))
    except ValueError:
        try:  # `2852039166`, `0xa9fea9fe` and `169.254.43518` are addresses, too
            ip = IPv4Address(socket.inet_aton(text))
        except OSError:
            return "inner" if _INNER_NAME.fullmatch(text) else ""
    return "metadata" if str(ip) in _METADATA else "" if ip.is_global else "inner"


def _unwrapped(ip: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    if isinstance(ip, IPv4Address):
        return ip
    if int(ip) > 1 and any(ip in network for network in _WRAPPED):
        return IPv4Address(int(ip) & 0xFFFFFFFF)
    return ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else ip)
