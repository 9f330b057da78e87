"""Connects to a host of a lab: a copy of this script is the ProxyCommand of ssh, with `ProxyUseFdpass`.

    ADDRESS PORT

It runs in the network namespace of the lab's client and passes the connected socket to ssh, so no process relays the
data. Imports nothing of the program.
"""

import array
import socket
import sys

_TIMEOUT_S = 10.0


def main(arguments: list[str]) -> str:
    """Connect and pass on the socket; returns the reason if that fails, in ssh's wording."""
    address, port = arguments
    try:
        connected = socket.create_connection((address, int(port)), timeout=_TIMEOUT_S)
    except TimeoutError:
        return f"ssh: connect to host {address} port {port}: Connection timed out"
    except OSError as error:
        return f"ssh: connect to host {address} port {port}: {error.strerror or error}"
    connected.settimeout(None)  # ssh expects a blocking socket
    descriptors = array.array("i", [connected.fileno()])
    with socket.socket(fileno=1) as passing:
        passing.sendmsg([b"\0"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) or 0)
