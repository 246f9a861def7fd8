"""The first program of every sandbox: runs its commands, keeps its services up, reads and writes its files.

It runs inside, by the guest's ``python3 -I -S -E``, as the sandbox's only user; standard library only, one thread,
one epoll loop, nothing imported that it can do without (it must be small and start in milliseconds). It listens on
the abstract unix socket ``SOCKET``, which exists per network namespace, so that only the sandbox itself and the
daemon's own sockets (made inside that namespace from outside) can reach it. Whoever is inside may talk to it: that
gives nothing that a process of the same user would not have anyway. The daemon trusts no word of it.
"""
