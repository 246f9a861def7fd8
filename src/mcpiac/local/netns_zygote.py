"""Makes sockets inside other network namespaces: a program of its own, started by ``netns.Dialer``.

Run as ``python -I -S netns_zygote.py FD`` with an empty environment; it imports the standard library only and stays
single-threaded, which joining a user namespace demands. FD is one end of a SOCK_SEQPACKET pair. For each request it
forks a child that joins the namespace, makes the sockets, sends them and exits, so the zygote itself never leaves
its own namespaces. It ends when the other end of the pair is closed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import socket
import struct
import sys

REQUEST = struct.Struct("!QIQII4sH")
"""Number, pid, start time of the process (clock ticks since boot), address family, how many sockets; and the IPv4
address and port where they listen (port 0: they are left unconnected)."""
REPLY = struct.Struct("!QIIQ")
"""Number of the request, errno (0: the sockets come with it), step that failed, inode of the namespace."""

STEPS = (
    "",
    "find the process",
    "open its network namespace",
    "join its user namespace",
    "join it",
    "make sockets",
    "listen there",
)
_FIND, _OPEN, _USER, _JOIN, _MAKE, _LISTEN = range(1, 7)
_BACKLOG = 64
_IP_FREEBIND = 15
"""ip(7): an address may be bound before it is there, so that nobody waits for the sandbox's loopback to be up."""

# include/uapi/linux/nsfs.h and sched.h
_NS_GET_USERNS = 0xB701
_NS_GET_OWNER_UID = 0xB704
_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000


class StepFailed(Exception):
    """A step of the child failed with this errno."""

    def __init__(self, step: int, number: int) -> None:
        super().__init__(step, number)
        self.step = step
        self.errno = number


def start_time(stat: bytes) -> int:
    """Field 22 of /proc/PID/stat (proc_pid_stat(5)); the command before it may hold blanks and brackets."""
    return int(stat[stat.rindex(b")") + 2 :].split()[19])


def _setns(fd: int, kind: int) -> None:
    if hasattr(os, "setns"):  # Python 3.12
        os.setns(fd, kind)
        return
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(fd, kind) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def _join_owner(namespace: int) -> None:
    """Join the user namespace that owns the network namespace, which gives the right to join the latter."""
    owner = fcntl.ioctl(namespace, _NS_GET_USERNS)
    if os.fstat(owner).st_ino == os.stat("/proc/self/ns/user").st_ino:
        return
    try:
        _setns(owner, _CLONE_NEWUSER)
    except PermissionError:
        # Root without CAP_SYS_ADMIN (a container): the owner of the namespace may join it.
        buffer = bytearray(4)
        fcntl.ioctl(owner, _NS_GET_OWNER_UID, buffer)
        uid = int.from_bytes(buffer, sys.byteorder)
        if os.geteuid() != 0 or uid == 0:
            raise
        os.setgroups([])
        os.setresuid(uid, uid, uid)
        _setns(owner, _CLONE_NEWUSER)


def _make(
    pid: int, started: int, family: int, count: int, address: str, port: int
) -> tuple[int, list[socket.socket]]:
    """The inode of the namespace, and the sockets. Runs in a child, which is in the namespace afterwards."""
    step = _FIND
    try:
        process = os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        stat = os.open("stat", os.O_RDONLY | os.O_CLOEXEC, dir_fd=process)
        if start_time(os.read(stat, 4096)) != started:
            raise ProcessLookupError(errno.ESRCH, "another process has this pid now")
        step = _OPEN
        namespace = os.open("ns/net", os.O_RDONLY | os.O_CLOEXEC, dir_fd=process)
        inode = os.fstat(namespace).st_ino
        if inode == os.stat("/proc/self/ns/net").st_ino:
            raise PermissionError(errno.EPERM, "that is the host's own network")
        step = _USER
        _join_owner(namespace)
        step = _JOIN
        _setns(namespace, _CLONE_NEWNET)
        step = _MAKE
        made = [socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) for _ in range(count)]
        if family != socket.AF_UNIX:
            for each in made:
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if port:
            step = _LISTEN  # any port: who has joined the owner has its capabilities over this network
            for each in made:
                each.setsockopt(socket.IPPROTO_IP, _IP_FREEBIND, 1)
                each.bind((address, port))
                each.listen(_BACKLOG)
    except OSError as failure:
        raise StepFailed(step, failure.errno or errno.EIO) from failure
    return inode, made


def _answer(channel: socket.socket, request: bytes) -> None:
    number, pid, started, family, count, address, port = REQUEST.unpack(request)
    try:
        inode, made = _make(pid, started, family, count, socket.inet_ntoa(address), port)
    except StepFailed as failure:
        channel.send(REPLY.pack(number, failure.errno, failure.step, 0))
        return
    socket.send_fds(channel, [REPLY.pack(number, 0, 0, inode)], [each.fileno() for each in made])


def serve(channel: socket.socket) -> None:
    """Answer requests until the other end is closed."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps the children
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while request := channel.recv(REQUEST.size):
        try:
            child = os.fork()
        except OSError as failure:
            channel.send(REPLY.pack(REQUEST.unpack(request)[0], failure.errno or errno.EAGAIN, _FIND, 0))
            continue
        if child == 0:
            try:
                _answer(channel, request)
            finally:
                os._exit(0)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
