"""Escapes by means of the language itself: they go where they like in their own process, and gain nothing there."""

from sandbox_attacks import attacks

ESCAPES = attacks("""
# walks from a tuple to a class that starts programs !
import subprocess
classes = ().__class__.__base__.__subclasses__()
popen = next(c for c in classes if c.__name__ == "Popen" and c.__module__ == "subprocess")
result = popen(["/bin/sh", "-c", "echo gained"], stdout=-1).communicate()[0]
# the same walk with names made from pieces !
import subprocess
under = "_" * 2
base = getattr(getattr((), under + "cla" + "ss" + under), under + "ba" + "se" + under)
popen = next(c for c in getattr(base, under + "subcl" + "asses" + under)() if c.__name__ == "Po" + "pen")
result = popen(["/bin/sh", "-c", "echo gained"], stdout=-1).communicate()[0]
# walks attributes by a format string
from toolfold.sandbox import probe
result = "can" + "ary-" in "{0.__globals__}".format(probe.execute)
# walks attributes by format_map
from toolfold.sandbox import probe
result = "can" + "ary-" in "{f.__globals__}".format_map({"f": probe.execute})
# walks attributes by library helpers
import operator, string
from toolfold.sandbox import probe
found = str(operator.attrgetter("__globals__")(probe.execute))
result = "can" + "ary-" in found + str(string.Formatter().get_field("0.__globals__", (probe.execute,), {}))
# walks the frames of a generator into the runner
def walk():
    yield frame
    frame.gi_frame
def trail(frame):
    while frame is not None:
        yield frame
        frame = frame.f_back
frames = list(trail(sys._getframe()))
held = [value for frame in frames for value in (*frame.f_locals.values(), *frame.f_globals.values())]
result = [str(s) for s in held if isinstance(s, socket.socket) and s.fileno() not in (-1, 3)]
# walks the frames by inspect and of all threads
import inspect
held = [f.frame for f in inspect.stack()] + list(sys._current_frames().values())
seen = [str(f.f_globals) + str({k: v for k, v in f.f_locals.items() if k != "held"}) for f in held]
result = "can" + "ary-" in "".join(seen)
# finds a hidden object through an error
try:
    channel.missing
except AttributeError as error:
    result = error.obj.fileno() != 3
# searches all of memory for what the host holds
import gc
token = "can" + "ary-"
texts = [o for o in gc.get_objects() if type(o) is dict]
result = [k for d in texts for k, v in list(d.items()) if type(v) in (str, bytes) and token in str(v) and v != token]
# finds another socket in all of memory
import gc
result = [str(o) for o in gc.get_objects() if isinstance(o, socket.socket) and o.fileno() not in (-1, 3)]
# finds a way out through reloaded modules
import importlib, posix
importlib.reload(importlib)
sys.modules.pop("os", None)
import os as fresh
result = fresh.open(canary["secret"], 0)
# loads the built-in module anew
import importlib.machinery
posix = importlib.machinery.BuiltinImporter.load_module("posix")
result = posix.open(canary["secret"], 0)
# changes classes and decorates in place of calling
class Meta(type):
    def __call__(cls, *arguments):
        return open(canary["secret"]).read()
class Plain(metaclass=Meta):
    pass
@Plain
def result(): ...
# evaluates attacks in a hook of the interpreter
loot = []
def hook(event, arguments):
    if event == "open" and not loot:
        loot.append(1); loot.append(os.open(canary["secret"], 0))
sys.addaudithook(hook)
open("/dev/null").close()
result = loot[1:]
""")
