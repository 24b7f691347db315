"""Asks the server about the present mutant: ``python ask.py SOCKET MODULE``; exits with its answer. Imports little.

Without an answer it exits with 0: a mutant that nobody tested must not count as killed.
"""

import socket
import sys

answer = ""
try:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(sys.argv[1])
        connection.sendall(f"{sys.argv[2]}\n".encode())
        answer = connection.makefile().readline()
except OSError as error:
    print(error)
sys.exit(int(answer or 0))
