"""Secret sources become values that cannot be printed, and their fingerprints."""
