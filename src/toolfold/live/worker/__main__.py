"""`python -m toolfold.live.worker DESCRIPTOR`: a session for a person who trusts their own code, without a sandbox."""

import socket
import sys

from toolfold.live.worker.supervisor import main

if __name__ == "__main__":
    channel = socket.socket(fileno=int(sys.argv[1]))
    sys.argv = [""]
    if "" not in sys.path:
        sys.path.insert(0, "")
    main(channel)
