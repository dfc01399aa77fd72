"""Benches: each measures one promise and prints a JSON object, beside a peer or a bare baseline from the same run."""
