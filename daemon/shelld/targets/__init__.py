"""Other daemons, to which requests are passed on."""
