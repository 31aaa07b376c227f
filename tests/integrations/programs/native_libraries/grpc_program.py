"""A program with a gRPC channel to a server in another process (`serve`: in this one, too)."""

import subprocess
import sys
from concurrent import futures

import grpc
import two_epochs


class Echo(grpc.GenericRpcHandler):
    def service(self, details):
        return grpc.unary_unary_rpc_method_handler(lambda request, context: request)


def serve():
    server = grpc.server(futures.ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((Echo(),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return server, port


class Used(two_epochs.Job):
    def __init__(self, port):
        self.port, self.channel = port, None

    def __getitem__(self, index):
        if self.channel is None:
            self.channel = grpc.insecure_channel(f"127.0.0.1:{self.port}")
        return len(self.channel.unary_unary("/a/b")(b"x" * index, timeout=60))


class Late(two_epochs.Job):
    def __init__(self, port):
        self.port = port

    def __getitem__(self, index):
        if index < two_epochs.LATE:
            return index
        import grpc

        with grpc.insecure_channel(f"127.0.0.1:{self.port}") as channel:
            return len(channel.unary_unary("/a/b")(b"x" * index, timeout=60))


def main():
    if two_epochs.CASE == "server":
        print(serve_until_closed(), end="")
        return
    command = [sys.executable, __file__, "server"]
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True) as other:
        port = int(other.stdout.readline())
        channels = []  # one that is open has threads, used or not

        def call(index):
            channels.append(channel := grpc.insecure_channel(f"127.0.0.1:{port}"))
            return len(channel.unary_unary("/a/b")(b"x" * index, timeout=60))

        cases = {"used": Used, "late": Late, "persistent": Used, "imported": Used}
        made = {name: lambda kind=kind: kind(port) for name, kind in cases.items()}
        server = None
        if two_epochs.CASE == "serves":
            made["serves"] = two_epochs.Unused
            server, _ = serve()
        two_epochs.run(call, made)
        for channel in channels:
            channel.close()
        if server is not None:
            server.stop(None).wait()
        other.stdin.close()


def serve_until_closed():
    server, port = serve()
    print(port, flush=True)
    sys.stdin.read()
    server.stop(None).wait()
    return ""


if __name__ == "__main__":
    main()
