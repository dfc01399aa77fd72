"""The surface: the few tools that a model sees, whatever wire it comes over.

    base.py                                the contract that every profile fulfils
    discovery.py direct.py auto.py live.py  the profiles
    pinned.py                              tools that stand beside the discovery operations
    definitions.py                         the operations as a model sees them
    operations.py results.py               a call: what came in, what is done, what goes out
    instructions.py                        what a model reads before its first call

Above: the MCP server, the HTTP face, the adapters. Below: the gateway.
"""
