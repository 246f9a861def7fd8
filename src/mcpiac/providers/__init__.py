"""One sandbox API call becomes one outcome, whichever provider answers."""
