"""The package store: one install per exact package, made once, checked, read-only, mounted into sandboxes."""
