"""Words with a fixed part in a request: those that say nothing, and those that hint at others in a document."""

from re import findall


def word_list(text: str) -> list[str]:
    return findall(r"\S+", text)


STOP = frozenset(
    word_list("""
    a about according all also am an and any appear appears are as asked at be been being belong belongs between
    but by called can concerning contain contained containing contains correspond corresponding could details
    did do document does doing done down each entry every exact exactly extract field file find following for
    from full get give given gives got had happen happened happens has have having he her here his hold holds
    how i if in information inside into is it item its just kind know let line lines list listed locate long
    look looking made make many may me mention mentioned mentions might much must my named need occur occurred
    occurs of on one only or other our out output over part particular please precise present provide question
    quote record record's recorded regarding related relevant report result results return row rows same say
    says section see set should show shown so some specify stand stands state stated stored such tell text than
    that the their them then there these they thing things this those through to tool under up us use used using
    value values verbatim want was we were what whatever whats when where whether which while who whom whose why
    will with within would you your
    """)
)

REQUEST_WORDS = frozenset(
    word_list("""
    called document entry extract file find give know line lines list look looking many mention mentions much
    named need output please report request result results show tell text value values want what when where
    which whom whose
    """)
)
"""Those of them that belong to the asking, and never to what is asked for."""

HINTS: dict[str, tuple[str, ...]] = {
    "who": ("author", "user", "owner", "name"),
    "wrote": ("author",),
    "author": ("author", "committ"),
    "mail": ("email", "@"),
    "email": ("mail", "@"),
    "error": ("exception", "fail", "fatal", "critical", "traceback"),
    "err": ("error", "exception"),
    "fail": ("error", "exception"),
    "failur": ("fail", "error"),
    "exception": ("error", "traceback"),
    "crash": ("fatal", "panic", "exception", "segfault"),
    "warn": ("warning",),
    "problem": ("error", "fail", "warn"),
    "price": ("amount", "cost", "total"),
    "cost": ("price", "amount"),
    "amount": ("total", "price", "sum"),
    "phone": ("tel", "mobile"),
    "telephon": ("phone", "mobile"),
    "link": ("url", "href"),
    "address": ("addr", "url", "street"),
    "website": ("url", "http"),
    "delet": ("remov", "drop"),
    "remov": ("delet",),
    "creat": ("add", "new", "insert"),
    "add": ("new", "creat", "insert"),
    "chang": ("modif", "updat"),
    "modifi": ("chang", "updat"),
    "updat": ("chang", "modif"),
    "time": ("timestamp", "date", "_at"),
    "date": ("time", "_at"),
    "duration": ("elapsed", "_ms", "took", "seconds", "latency"),
    "took": ("elapsed", "duration", "latency", "_ms"),
    "slow": ("timeout", "duration", "latency"),
    "city": ("town", "location"),
    "country": ("nation", "region"),
    "kind": ("type",),
    "identifier": ("id",),
    "ident": ("id",),
    "title": ("subject", "name"),
    "subject": ("title", "message"),
    "messag": ("subject", "msg"),
    "stock": ("quantity", "inventory", "qty"),
    "quant": ("qty", "count"),
    "custom": ("client", "user", "buyer"),
    "client": ("customer",),
    "repo": ("repository",),
    "repository": ("repo",),
    "repositor": ("repo",),
    "config": ("setting", "option"),
    "setting": ("config", "option"),
    "default": ("default",),
    "limit": ("max",),
    "maximum": ("max",),
    "minimum": ("min",),
    "version": ("release",),
    "machine": ("host", "server"),
    "host": ("server", "node"),
    "latency": ("_ms", "duration", "elapsed"),
    "depend": ("requires", "needs"),
    "team": ("owner",),
    "responsible": ("owner", "team", "assign"),
    "employ": ("staff", "worker"),
    "salary": ("wage", "pay"),
    "birthday": ("birth", "dob"),
    "born": ("birth", "dob"),
}
"""Stem → what the document may say instead. Hints count little: they only order what is found otherwise."""

MONTHS = {name: number for number, name in enumerate(word_list("jan feb mar apr may jun jul aug sep oct nov dec"), 1)}
