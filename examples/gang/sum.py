"""Every rank sends its number to rank 0, which prints the sum. Uses the variables that torchrun and MPI users know."""

import os
import socket
import time

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
ADDRESS = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])


def gather() -> int:
    """Rank 0: waits for the others."""
    total = RANK + 1
    with socket.create_server(ADDRESS) as server:
        for _ in range(WORLD - 1):
            peer, _ = server.accept()
            with peer:
                total += int(peer.recv(16))
    return total


def send() -> None:
    """The others: rank 0 may not listen yet, so try for a while."""
    for _ in range(100):
        try:
            with socket.create_connection(ADDRESS, timeout=5) as peer:
                peer.sendall(str(RANK + 1).encode())
                return
        except OSError:
            time.sleep(0.1)
    raise SystemExit(f"rank {RANK} could not reach rank 0 at {ADDRESS}")


if __name__ == "__main__":
    print(f"rank {RANK} of {WORLD} on {os.environ['CUMULO_NODE_IPS'].split()[RANK]}")
    if RANK == 0:
        print(f"sum: {gather()}")
    else:
        send()
