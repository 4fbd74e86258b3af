"""Connects a sandbox to the hosts that its policy lists, and to no other hosts.

A sandbox has a network of its own, which is not connected to any other network. The keeper of the
sandbox makes a listening socket in this network and sends the socket to the daemon. The daemon
passes the socket on to a proxy, which is a process outside of the sandbox. So commands can reach
the proxy, and nothing else. The proxy accepts HTTP requests, tunnels (CONNECT) and SOCKS5. It
judges the host, resolves its name, judges the addresses, and connects to an address that it has
judged. It does not look into tunnels, so commands can reach everything that an allowed host gives
access to.

The daemon starts one proxy for each sandbox with the network `hosts`. So hostile bytes and many
connections harm only the sandbox that they come from.

The protocol
------------
Messages are marshalled tuples on `keeper.channel.Channel`.

daemon -> proxy
    ``(SERVE, first, hosts)`` + [socket]
                                     serve the listening socket. `first` is the pid of the sandbox's
                                     first process. This process is the ancestor of all commands.
                                     `hosts` has the entries of the policy.

proxy -> daemon
    ``(SERVING,)``                   the proxy accepts connections from now on.
    ``(DENIED, entries)``            the connections that the proxy has refused since the last such
                                     message. An entry is a tuple (runner, host, port, reason,
                                     count, at). `runner`: the pid of the runner whose command has
                                     asked, or 0 if the runner is not known. `at`: the time
                                     (time.monotonic()) of the last refusal, or of the first refusal
                                     if the runner is not known.

The proxy sends DENIED before it answers the client whose connection it has refused. So when a
command has ended, the daemon knows all connections that were refused to the command.

End of file means that the other side is gone. If the daemon is gone, the proxy ends. If the proxy
is gone, the daemon starts another proxy, which gets the same socket. Until the other proxy serves
this socket, new connections wait in it.
"""

from typing import Final, Literal

SERVE: Final = 1
SERVING: Final = 2
DENIED: Final = 3

# The reasons why a connection is refused. "not_listed": no entry of the policy lists the host.
# "private_address": an entry lists the name of the host, but all addresses of this name are
# private, and no entry lists them. "full": there are too many connections.
Reason = Literal["not_listed", "private_address", "full"]

# The address at which commands find the proxy. The network of the sandbox is new, so the port is
# free.
ADDRESS: Final = "127.0.0.1"
PORT: Final = 3128
