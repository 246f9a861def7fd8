"""The sandbox API v1 over HTTP: requests in, calls of the fleet, answers and the error envelope out."""
