"""Asks the server about the present mutant: ``python ask.py SOCKET MODULE``; exits with its answer. Imports little."""

import socket
import sys

with socket.socket(socket.AF_UNIX) as connection:
    connection.connect(sys.argv[1])
    with connection.makefile("rw") as stream:
        stream.write(sys.argv[2] + "\n")
        stream.flush()
        sys.exit(int(stream.readline() or 1))
