"""Where commands go: sockets, the embedded engine, a script for tests."""
