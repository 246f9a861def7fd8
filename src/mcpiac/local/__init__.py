"""The embedded backend: a server of the sandbox API with real sandboxes on this machine."""
