"""What runs inside the confined child: models, functions, the link to the host, and the modules that a script imports.

Nothing here is a boundary. A script may read and break all of it; the host checks every frame by itself. Nothing here
imports more than it must, either: a zygote loads it all before the first script can start.
"""
