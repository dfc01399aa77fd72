"""Signing in: OAuth to servers as a client, and tokens of callers as a protected resource. Imports nothing heavy.

Above: upstreams and faces. Below: the wire, the configuration.
"""
