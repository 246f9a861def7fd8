"""The program that sets up one MCP server inside its guest.

Standard library only, Python >= 3.9: its *text* is shipped (``setup.archive``), the product never imports it. It

- holds a lock, so that a second run waits for the first;
- compares what is there with what is wanted and changes only that; restarts the service only if something changed;
- waits until the server's port answers, then reads the socket table: it must listen on loopback only, unless any
  address was asked for or this machine has no network but ``lo``;
- ends with one JSON line on stdout: ``{"mcpiac-setup": facts}``, or ``{"mcpiac-setup-error": …}`` and exit status 1.
"""
