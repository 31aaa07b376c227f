"""A file on a network file system whose server takes the request to read and never answers.

expects: disk-wait
"""

import ctypes
import os
import struct
import subprocess
import sys
import time

from torch.utils.data import DataLoader, Dataset

LOOKUP, GETATTR, OPEN, INIT, READ = 1, 3, 14, 26, 15
QUIET = {
    2,
    15,
    36,
    42,
}  # that get no answer: forgetting, interrupts, and reading, which is the hang
NO_SUCH_CALL = -38


def attributes(node: int) -> bytes:
    mode = 0o040755 if node == 1 else 0o100644
    return struct.pack("<6Q10I", node, 1000, 2, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def serve(folder: str) -> None:
    """Be a file system with one file; the only process that holds its descriptor, so that all
    who wait are freed when it ends."""
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"bucket", folder.encode(), b"fuse.bucket", 0, options):
        print("cannot:", os.strerror(ctypes.get_errno()), flush=True)
        return
    print("mounted", flush=True)
    while True:
        request = os.read(device, 200_000)
        _, code, unique, node = struct.unpack_from("<IIQQ", request)
        if code in QUIET:
            continue
        answer = {
            INIT: struct.pack("<IIIIHHIIHHI28x", 7, 31, 4096, 0, 4, 4, 65536, 1, 1, 0, 0),
            LOOKUP: struct.pack("<4QII", 2, 0, 60, 60, 0, 0) + attributes(2),
            GETATTR: struct.pack("<QII", 60, 0, 0) + attributes(node),
            OPEN: struct.pack("<QII", 1, 1, 0),
        }.get(code)
        error = NO_SUCH_CALL if answer is None else 0
        answer = answer or b""
        os.write(device, struct.pack("<IiQ", 16 + len(answer), error, unique) + answer)


class Remote(Dataset[int]):
    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        if index == 9:
            with open(f"{self.folder}/{index}.jpg", "rb") as file:
                return len(file.read())
        return index


def main() -> None:
    folder = os.path.join(sys.argv[1], "data")
    if "serve" in sys.argv:
        serve(folder)
        return
    if "inside" not in sys.argv:
        os.makedirs(folder)
        again = [sys.executable, __file__, *sys.argv[1:], "inside"]
        os.execvp("unshare", ["unshare", "-m", *again])
    command = [sys.executable, __file__, sys.argv[1], "serve"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    said = server.stdout.readline()
    if "mounted" not in said:
        print(said or "cannot: there is no FUSE", flush=True)
        return
    print("begins", flush=True)
    try:
        for _ in DataLoader(Remote(folder), batch_size=4, num_workers=2, timeout=300):
            time.sleep(0.01)
    finally:
        server.kill()


if __name__ == "__main__":
    main()
