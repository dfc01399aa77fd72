"""What runs inside the confined child: models, functions, the way to the host, and the modules that a script imports.

Nothing here is a boundary. A script may read and break all of it; the host checks every frame by itself.
"""
