"""Objects made to break whoever looks at them: for each a name, the code that makes it, and the expression to inspect.

They are plain Python that runs inside a session. `slow` ones answer only by their deadline.
"""

from typing import NamedTuple


class Torture(NamedTuple):
    name: str
    setup: str
    expr: str = "it"
    slow: bool = False
    forges: bool = False
    """It answers in place of the worker."""


def one(name: str, setup: str, expr: str = "it", *, slow: bool = False, forges: bool = False) -> Torture:
    return Torture(name, setup, expr, slow, forges)


def with_repr(body: str) -> str:
    return f"class Odd:\n    def __repr__(self):\n        {body}\nit = Odd()"


TORTURES: tuple[Torture, ...] = (
    one("repr of another type", with_repr("return 42")),
    one("repr raises", with_repr("raise ValueError('no')")),
    one("repr leaves", with_repr("raise SystemExit(3)")),
    one(
        "repr is a hostile str",
        "class S(str):\n    def __len__(self): raise ValueError\n    def __getitem__(self, i): raise ValueError\n"
        "    def encode(self, *a): raise ValueError\n" + with_repr("return S('x' * 9000)"),
    ),
    one("repr holds lone surrogates", with_repr("return '\\ud800' * 5000")),
    one("repr holds control characters", with_repr("return '\\x00\\x1b' * 5000")),
    one("repr is huge", with_repr("return 'x' * 10**9")),
    one("repr loops", with_repr("\n        while True: pass"), slow=True),
    one(
        "repr cannot be stopped",
        with_repr(
            "\n        while True:\n            try:\n                sum(range(10**6))\n"
            "            except BaseException: pass"
        ),
        slow=True,
    ),
    one("repr in a C loop", with_repr("return str(max(range(10**12)))"), slow=True),
    one("repr in a bad regex", "import re\n" + with_repr("return str(re.match(r'(a+)+$', 'a' * 40 + 'b'))"), slow=True),
    one("repr mutates", "kept = [1]\n" + with_repr("kept.append(2); globals().clear(); return 'gone'")),
    one("repr closes descriptors", "import os\n" + with_repr("os.closerange(0, 256); return 'closed'")),
    one(
        "repr starts threads",
        "import threading\n" + with_repr("threading.Thread(target=lambda: None).start(); return 'ran'"),
    ),
    one(
        "repr writes an answer of its own",
        "import json, os, stat, struct\n"
        "def forge():\n"
        "    kind = {'name': 'x' * 200_000, 'module': 'm', 'qualified': 'q'}\n"
        "    answer = {'type': kind, 'kind': 'object', 'whole': True}\n"
        "    data = json.dumps(answer).encode()\n"
        "    for fd in range(3, 256):\n"
        "        try:\n"
        "            if stat.S_ISFIFO(os.fstat(fd).st_mode): os.write(fd, struct.pack('>I', len(data)) + data)\n"
        "        except OSError: pass\n"
        "    os._exit(0)\n" + with_repr("forge()"),
        forges=True,
    ),
    one(
        "repr writes without end",
        "import os, stat\n"
        "def flood():\n"
        "    fds = []\n"
        "    for fd in range(3, 256):\n"
        "        try:\n"
        "            if stat.S_ISFIFO(os.fstat(fd).st_mode): fds.append(fd)\n"
        "        except OSError: pass\n"
        '    frame = b\'\\0\\0\\0\\x0b{"at":"at"}\' * 4000\n'
        "    while True:\n"
        "        for fd in fds:\n"
        "            try: os.write(fd, frame)\n"
        "            except OSError: fds.remove(fd)\n"
        "        if not fds: os._exit(0)\n" + with_repr("flood()"),
        slow=True,  # on a busy machine it writes until its time is up
    ),
    one("repr asks the host", with_repr("return repr(open_output('nothing'))")),
    one("repr exits the process", "import os\n" + with_repr("os._exit(7)")),
    one("repr kills itself", "import os\n" + with_repr("os.kill(os.getpid(), 9)")),
    one("repr recurses", with_repr("return repr(self)")),
    one("repr forks", "import os\n" + with_repr("\n        os.fork()\n        return 'forked'")),
    one(
        "hostile metaclass",
        "class M(type):\n    def __repr__(cls): raise ValueError\n    def __instancecheck__(cls, x): raise ValueError\n"
        "    def __subclasscheck__(cls, x): raise ValueError\n    __hash__ = None\n"
        "    def __eq__(cls, other): raise ValueError\nclass Odd(metaclass=M): pass\nit = Odd()",
    ),
    one(
        "class of a hostile metaclass",
        "class M(type):\n    def __repr__(cls): raise ValueError\nclass it(metaclass=M): pass",
    ),
    one("answers every name", "class Odd:\n    def __getattr__(self, name): return Odd()\nit = Odd()"),
    one(
        "no attribute at all",
        "class Odd:\n    def __getattribute__(self, name): raise RuntimeError(name)\nit = Odd()",
    ),
    one(
        "dict is a property",
        "class Odd:\n    __slots__ = ('a', 'b')\n    @property\n    def __dict__(self): raise ValueError\nit = Odd()",
    ),
    one("lying class", "class Odd:\n    @property\n    def __class__(self): raise ValueError\nit = Odd()"),
    one("dir raises", "class Odd:\n    def __dir__(self): raise ValueError('no names')\nit = Odd()"),
    one("dir of another type", "class Odd:\n    def __dir__(self): return 5\nit = Odd()"),
    one(
        "dir never ends",
        "class Odd:\n    def __dir__(self):\n        while True: pass\nit = Odd()",
        slow=True,
    ),
    one("doc raises", "class Odd:\n    @property\n    def __doc__(self): raise ValueError('no doc')\nit = Odd()"),
    one("doc of another type", "class Odd:\n    __doc__ = 5\nit = Odd()"),
    one("len negative", "class Odd:\n    def __len__(self): return -1\nit = Odd()"),
    one("len huge", "class Odd:\n    def __len__(self): return 10**30\nit = Odd()"),
    one("len raises", "class Odd:\n    def __len__(self): raise ValueError\nit = Odd()"),
    one("len of another type", "class Odd:\n    def __len__(self): return 'three'\nit = Odd()"),
    one("endless iteration", "class Odd:\n    def __iter__(self):\n        while True: yield 1\nit = Odd()"),
    one("no truth", "class Odd:\n    def __bool__(self): raise ValueError\nit = [Odd()]"),
    one(
        "keys that fight",
        "class K:\n    def __hash__(self): return 1\n    def __eq__(self, other): raise ValueError\n"
        "    def __repr__(self): raise ValueError\nit = {K(): 1}\nit[float('nan')] = 2\nit['s'] = 3\nit[4] = 4",
    ),
    one("globals with odd keys", "globals()[42] = 1\nit = 5"),
    one(
        "subclasses of built-in types",
        "class L(list):\n    def __iter__(self): raise ValueError\n    def __len__(self): raise ValueError\n"
        "    def __getitem__(self, i): raise ValueError\nit = L([1, 2, 3])",
    ),
    one(
        "dict subclass",
        "class D(dict):\n    def items(self): raise ValueError\n    def __iter__(self): raise ValueError\nit = D(a=1)",
    ),
    one("int subclass", "class I(int):\n    def __repr__(self): raise ValueError\nit = I(5)"),
    one(
        "str subclass",
        "class S(str):\n    def __len__(self): raise ValueError\n"
        "    def __str__(self): raise ValueError\nit = S('abc')",
    ),
    one("list in itself", "it = []\nit.append(it)"),
    one("dict in itself", "it = {}\nit['me'] = it"),
    one("deque in itself", "import collections\nit = collections.deque()\nit.append(it)"),
    one(
        "defaultdict of itself",
        "import collections\nit = collections.defaultdict(list)\nit.default_factory = it.copy\nit['me'] = it",
    ),
    one("proxy of itself", "import types\nd = {}\nit = types.MappingProxyType(d)\nd['me'] = it"),
    one("namespace in itself", "import types\nit = types.SimpleNamespace()\nit.me = it"),
    one("ordered dict in itself", "import collections\nit = collections.OrderedDict()\nit['me'] = it"),
    one("chain map in itself", "import collections\nit = collections.ChainMap({})\nit['me'] = it"),
    one(
        "dataclass in itself",
        "import dataclasses\n@dataclasses.dataclass\nclass N:\n    me: object = None\nit = N()\nit.me = it",
    ),
    one("very deep", "it = []\nfor _ in range(100000): it = [it]"),
    one("very wide", "it = list(range(10**6))"),
    one("wide range", "it = range(10**18)"),
    one("wider range", "it = range(10**30)"),
    one("billion laughs", "it = ['ha']\nfor _ in range(60): it = [it, it]"),
    one("huge integer", "it = 10**200000"),
    one("huge text", "it = 'x' * 10**8"),
    one("wide unicode", "it = '\\U0001f600' * 10**5"),
    one("bytes", "it = bytes(10**7)"),
    one("bytearray", "it = bytearray(10**7)"),
    one("released view", "it = memoryview(b'abc')\nit.release()"),
    one("view", "it = memoryview(b'abc' * 1000)"),
    one("closed map", "import mmap\nit = mmap.mmap(-1, 4096)\nit.close()"),
    one("array", "import array\nit = array.array('d', [0.5] * 10**5)"),
    one("pointer to nothing", "import ctypes\nit = ctypes.cast(16, ctypes.POINTER(ctypes.c_int))"),
    one("struct sequence", "import time\nit = time.gmtime(0)"),
    one("lazy frame", "import time\nclass Lazy:\n    def __repr__(self): time.sleep(60)\nit = Lazy()", slow=True),
    one("socket", "import socket\nit = socket.socketpair()[0]"),
    one("lock", "import threading\nit = threading.Lock()\nit.acquire()"),
    one("thread", "import threading\nit = threading.Thread(target=print)"),
    one("module", "import json\nit = json"),
    one("frame", "import sys\nit = sys._getframe()"),
    one("code", "it = (lambda: 0).__code__"),
    one(
        "running generator",
        "def g():\n    global seen\n    seen = str(it.gi_running)\n    yield 1\n    yield 2\nit = g()\nnext(it)",
    ),
    one("coroutine never awaited", "async def c(): pass\nit = c()"),
    one("async generator", "async def a():\n    yield 1\nit = a()"),
    one("dead weakref", "import weakref\nclass T: pass\nit = weakref.ref(T())"),
    one("dead proxy", "import weakref\nclass T: pass\nit = weakref.proxy(T())"),
    one("closed loop", "import asyncio\nit = asyncio.new_event_loop()\nit.close()"),
    one("iterator", "it = iter([1, 2, 3])"),
    one(
        "exceptions in a ring",
        "a, b = ValueError('a'), KeyError('b')\na.__cause__ = b\nb.__context__ = a\n"
        "it = ExceptionGroup('many', [a, b])",
    ),
    one("exception with a broken message", "class E(Exception):\n    def __str__(self): raise ValueError\nit = E('x')"),
    one(
        "enum",
        "import enum\nclass E(enum.Enum):\n    A = 1\n    B = 1\n    def __repr__(self): raise ValueError\nit = E.B",
    ),
    one("named tuple", "import collections\nP = collections.namedtuple('P', 'x y')\nP._fields = 5\nit = P(1, 2)"),
    one(
        "secret fields",
        "import dataclasses\n@dataclasses.dataclass\nclass Login:\n    user: str\n"
        "    password: str = dataclasses.field(repr=False)\n"
        "it = Login('ann', 'hunter2')",
    ),
    one(
        "signature with a hook",
        "class S:\n    @property\n    def __signature__(self): raise ValueError\n"
        "    def __call__(self): pass\nit = S()",
    ),
    one(
        "default with a bad repr",
        "class D:\n    def __repr__(self): raise ValueError\ndef it(x=D(), y=list(range(10**5))): pass",
    ),
    one("wrapped by itself", "def it(): pass\nit.__wrapped__ = it"),
    one("no builtins left", "import builtins\nkeep = dict(vars(builtins))\nvars(builtins).clear()\nit = [1]"),
    one("builtins are a number", "__builtins__ = 5\nit = [1]"),
    one("shadowed names", "print = repr = len = type = isinstance = str = None\nit = [1]"),
    one(
        "settings of the interpreter",
        "import sys, gc, signal\nsys.setrecursionlimit(10**9)\nsys.setswitchinterval(1e9)\ngc.disable()\n"
        "signal.signal(signal.SIGCHLD, lambda *a: 1 / 0)\nsignal.signal(signal.SIGINT, lambda *a: None)\n"
        "sys.stdout = None\nit = [object()]",
    ),
    one("tiny recursion limit", "import sys\nsys.setrecursionlimit(60)\nit = [[[1]]]"),
    one(
        "trace function",
        "import sys\ncalls = []\ndef trace(frame, event, value):\n"
        "    if frame.f_code.co_name in ('sections', 'kind_of'): calls.append(event)\n"
        "sys.settrace(trace)\nit = [object()]",
    ),
    one("ignored children", "import signal\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\nit = object()"),
    one("walrus", "it = 1", "(it := 5)"),
    one("exec", "it = 1", "exec('it = 2')"),
    one("walrus in a comprehension", "it = 1", "[it := n for n in range(3)]"),
    one("lambda with an effect", "it = [1]", "(lambda: it.clear())()"),
    one("drops what it is made of", "it = [1]", "globals().clear()"),
    one(
        "exit handlers",
        "import atexit, weakref\ncount = []\natexit.register(count.append, 1)\nclass T:\n"
        "    def __del__(self): count.append(2)\n"
        "t = T()\nweakref.finalize(t, count.append, 3)\nit = t",
    ),
    one("too deep to compile", "it = 1", "(" * 5000 + "1" + ")" * 5000),
    one("null byte", "it = 1", "it\0"),
)
