"""What was done is kept: snapshot, journal, lock, history; never a secret, never lost."""
