"""What is installed inside a sandbox, per kind of guest: values in, text out."""
