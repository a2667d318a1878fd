"""The ``penstock`` command, one file a command group."""
