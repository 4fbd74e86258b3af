"""The way from a sandbox to the hosts that its policy lists, and to no other.

A sandbox has a network of its own, which leads nowhere. Its keeper makes a listening socket there
and hands it to the daemon, which hands it to a proxy: a process outside of the sandbox. So commands
can reach the proxy, and nothing else. The proxy takes HTTP requests, tunnels (CONNECT) and SOCKS5.
It judges the host, resolves its name, judges the addresses, and connects to an address that it has
judged. It looks into no tunnel: whoever is at the other end of an allowed host can be reached.

The daemon starts one proxy for each sandbox with the network `hosts`. So hostile bytes and many
connections harm only the sandbox that they come from.

The protocol
------------
Messages are marshalled tuples on `keeper.channel.Channel`.

daemon -> proxy
    ``(SERVE, first, hosts)`` + [socket]
                                     serve the listening socket. `first`: the pid of the sandbox's
                                     first process, below which the commands are. `hosts`: the
                                     entries of the policy.

proxy -> daemon
    ``(SERVING,)``                   it takes connections from now on.
    ``(DENIED, entries)``            what it has refused since the last such message. An entry is a
                                     tuple (runner, host, port, reason, count, at). `runner`: the
                                     pid of the runner whose command has asked; 0 if it is not
                                     known. `at`: the time (time.monotonic()) of the last refusal,
                                     but of the first one if the runner is not known.

The client of a refused connection gets its answer after this message. So when a command has ended,
the daemon knows all that was refused to it.

End of file means that the other side is gone. Then the proxy ends; the daemon starts another one,
which gets the same socket. Meanwhile connections wait in this socket.
"""

from typing import Final, Literal

SERVE: Final = 1
SERVING: Final = 2
DENIED: Final = 3

# Why a connection is refused. Either no entry has the host; or an entry has it, but its addresses
# are private, and no entry has these addresses; or there are too many connections.
Reason = Literal["not_listed", "private_address", "full"]

# Where commands find the proxy. Their network is new, so the port is free.
ADDRESS: Final = "127.0.0.1"
PORT: Final = 3128
