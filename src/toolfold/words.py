"""Words out of tool names and descriptions: split, fold to one form, and tell which carry meaning.

It knows English words and the spelling of identifiers, and nothing about categories or ranking. The ontology and the
search stand above it. Text in Chinese or Japanese characters comes out as pairs of characters, which serve as words.
"""

import re
import unicodedata
from functools import lru_cache

_STOP_WORDS_TEXT = """
a about above all also an and any are as at available based be been before being below between both but by can could
default do does each either etc example examples for from given has have here how if in into is it its just may me
more most must my no not of on one only optional or other our out over per please provide provided provides required
same should so some such than that the their them then there these they this those through to tool tools under up
use used uses using via was we were what when where whether which while will with within without would you your
"""
NAME_STOP_WORDS = frozenset(_STOP_WORDS_TEXT.split())

_IRREGULAR = {
    "aliases": "alias",
    "analyses": "analysis",
    "bonuses": "bonus",
    "buses": "bus",
    "caches": "cache",
    "calories": "calorie",
    "children": "child",
    "commodities": "commodity",
    "cookies": "cookie",
    "criteria": "criterion",
    "data": "data",
    "databases": "database",
    "headaches": "headache",
    "indexes": "index",
    "indices": "index",
    "matrices": "matrix",
    "media": "media",
    "memories": "memory",
    "men": "man",
    "movies": "movie",
    "people": "person",
    "queries": "query",
    "statuses": "status",
    "synopses": "synopsis",
    "taxes": "tax",
    "vertices": "vertex",
    "viruses": "virus",
    "wives": "wife",
    "women": "woman",
    "zombies": "zombie",
    "lenses": "lens",
    "leaves": "leave",
    "niches": "niche",
    "axes": "axis",
    "selfies": "selfie",
    "pies": "pie",
    "ties": "tie",
    "brownies": "brownie",
}

_KEPT_TEXT = """
alias aliexpress always analytics ansible apis aps atlas aws axis bias bls bus business canvas chaos chess class css
dns does earnings economics ens express focus gas goods gps has headphones hess https ios is its jenkins js kibana
kubernetes kudos lens less lyrics mars mass mathematics nats news odds os paris physics plus pos postgres process
progress redis sass savings series sms sns species sqs status tennis texas this tls trans us virus vps was wordpress
yes
"""
_NOT_PLURAL = frozenset(_KEPT_TEXT.split())

_SAME = {
    "repo": "repository",
    "repos": "repository",
    "msg": "message",
    "msgs": "message",
    "img": "image",
    "imgs": "image",
    "db": "database",
    "dbs": "database",
    "org": "organization",
    "orgs": "organization",
    "dir": "directory",
    "dirs": "directory",
    "config": "configuration",
    "configs": "configuration",
    "cmd": "command",
    "txs": "transaction",
    "txn": "transaction",
    "env": "environment",
    "envs": "environment",
    "cryptos": "crypto",
    "apps": "app",
    "addr": "address",
    "acct": "account",
    "pic": "picture",
    "pics": "picture",
    "vid": "video",
    "docs": "doc",
    "params": "parameter",
    "param": "parameter",
    "prs": "pr",
    "mrs": "mr",
    "ids": "id",
    "urls": "url",
    "vms": "vm",
    "pdfs": "pdf",
    "llms": "llm",
    "nfts": "nft",
    "etfs": "etf",
    "ips": "ip",
    "ads": "ad",
    "dms": "dm",
    "kpis": "kpi",
    "cves": "cve",
    "iocs": "ioc",
    "csvs": "csv",
    "uis": "ui",
    "apis": "api",
    "sqls": "sql",
    "k8": "k8s",
    "daos": "dao",
    "tvs": "tv",
    "faqs": "faq",
    "pois": "poi",
    "vpcs": "vpc",
    "gpus": "gpu",
    "cpus": "cpu",
    "organisation": "organization",
    "organisations": "organization",
    "analyse": "analyze",
    "summarise": "summarize",
    "visualise": "visualize",
    "visualisation": "visualization",
    "optimise": "optimize",
    "colour": "color",
    "colours": "color",
    "catalogue": "catalog",
    "catalogues": "catalog",
    "centre": "center",
    "cheque": "check",
    "authorise": "authorize",
    "normalise": "normalize",
    "tokenise": "tokenize",
    "categorise": "categorize",
    "analyzes": "analyze",
    "analyzing": "analyze",
    "summarizes": "summarize",
    "summarizing": "summarize",
    "converts": "convert",
    "converting": "convert",
    "generates": "generate",
    "generating": "generate",
    "calculates": "calculate",
    "calculating": "calculate",
    "translates": "translate",
    "translating": "translate",
    "executes": "execute",
    "executing": "execute",
    "searching": "search",
    "searches": "search",
    "fetches": "fetch",
    "fetching": "fetch",
    "retrieves": "retrieve",
    "retrieving": "retrieve",
    "creates": "create",
    "creating": "create",
    "extracts": "extract",
    "extracting": "extract",
    "sends": "send",
    "sending": "send",
    "reads": "read",
    "reading": "read",
    "writes": "write",
    "validates": "validate",
    "validating": "validate",
    "encodes": "encode",
}

_WITH_DIGITS_TEXT = """
13f 1password 2d 3d 510k 7z a2a auth0 b2b base58 base64 brc20 c4 context7 d2 d3 e2b e2e ec2 erc1155 erc20 erc721
esp32 f1 ga4 h264 http2 hyper3d i18n ipv4 ipv6 k8s log4j m365 md5 mem0 mp3 mp4 n8n neo4j o365 oauth2 p2p r2 s3 sha1
sha256 sha512 soc2 utf8 v2ex web3 what3words x402
"""
_WITH_DIGITS = frozenset(_WITH_DIGITS_TEXT.split())

_GLUED = {
    ("git", "hub"): "github",
    ("git", "lab"): "gitlab",
    ("you", "tube"): "youtube",
    ("linked", "in"): "linkedin",
    ("open", "api"): "openapi",
    ("my", "sql"): "mysql",
    ("postgre", "sql"): "postgresql",
    ("java", "script"): "javascript",
    ("type", "script"): "typescript",
    ("tik", "tok"): "tiktok",
    ("chat", "gpt"): "chatgpt",
    ("dynamo", "db"): "dynamodb",
    ("mongo", "db"): "mongodb",
    ("big", "query"): "bigquery",
    ("power", "point"): "powerpoint",
    ("air", "table"): "airtable",
    ("click", "up"): "clickup",
    ("hub", "spot"): "hubspot",
    ("sales", "force"): "salesforce",
    ("word", "press"): "wordpress",
    ("web", "hook"): "webhook",
    ("web", "hooks"): "webhook",
    ("open", "ai"): "openai",
    ("graph", "ql"): "graphql",
    ("quick", "books"): "quickbooks",
    ("whats", "app"): "whatsapp",
    ("we", "chat"): "wechat",
    ("cloud", "flare"): "cloudflare",
    ("cloud", "watch"): "cloudwatch",
    ("face", "book"): "facebook",
    ("click", "house"): "clickhouse",
    ("dev", "ops"): "devops",
    ("time", "zone"): "timezone",
    ("data", "base"): "database",
    ("data", "frame"): "dataframe",
    ("time", "stamp"): "timestamp",
    ("trading", "view"): "tradingview",
    ("defi", "llama"): "defillama",
    ("service", "now"): "servicenow",
    ("pager", "duty"): "pagerduty",
    ("share", "point"): "sharepoint",
    ("one", "drive"): "onedrive",
    ("screen", "shot"): "screenshot",
    ("to", "do"): "todo",
    ("to", "dos"): "todo",
    ("key", "word"): "keyword",
}

_NAME_PARTS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z0-9]+|[A-Z0-9]+|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")
_TEXT_PARTS = re.compile(r"[a-z0-9]+|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")
_TRAILING_DIGITS = re.compile(r"^([a-z]{3,})\d+$")


@lru_cache(maxsize=65536)
def fold_word(word: str) -> str:
    """One form for a word and its plural, its usual short form and its British spelling. `word` is lower case."""
    same = _SAME.get(word)
    if same is not None:
        return same
    if word not in _WITH_DIGITS and (found := _TRAILING_DIGITS.match(word)):
        word = found[1]
    return _SAME.get(word) or _singular(word)


def _singular(word: str) -> str:
    if len(word) <= 3 or not word.endswith("s") or word in _NOT_PLURAL or word.endswith(("ss", "us", "is")):
        return word
    irregular = _IRREGULAR.get(word)
    if irregular is not None:
        return irregular
    if word.endswith("ies"):
        return word[:-3] + "y" if len(word) > 4 else word[:-1]
    if word.endswith(("sses", "xes", "ches", "shes", "zzes")):
        return word[:-2]
    return word[:-1]


_PLURALS = {single: many for many, single in _IRREGULAR.items()} | {
    "index": "indexes",
    "data": "data",
    "media": "media",
    "person": "people",
    "analysis": "analyses",
    "staff": "staff",
    "equipment": "equipment",
    "info": "info",
    "software": "software",
    "inventory": "inventory",
    "memory": "memory",
    "news": "news",
    "analytics": "analytics",
    "weather": "weather",
    "history": "history",
    "traffic": "traffic",
    "music": "music",
    "usage": "usage",
    "storage": "storage",
    "health": "health",
    "money": "money",
    "liquidity": "liquidity",
    "sentiment": "sentiment",
    "research": "research",
    "work": "work",
    "availability": "availability",
    "performance": "performance",
    "content": "content",
    "metadata": "metadata",
    "text": "text",
    "html": "HTML",
    "json": "JSON",
    "xml": "XML",
    "documentation": "documentation",
    "code": "code",
    "feedback": "feedback",
    "security": "security",
    "access": "access",
    "time": "times",
    "quality": "quality",
    "billing": "billing",
    "earnings": "earnings",
    "series": "series",
    "species": "species",
    "sql": "SQL",
    "sales": "sales",
    "gas": "gas",
    "liveness": "liveness",
    "markdown": "markdown",
    "audio": "audio",
}


def plural(word: str) -> str:
    """The plural of a folded word, for names of categories: `branch` → `branches`, `weather` → `weather`."""
    known = _PLURALS.get(word)
    if known is not None:
        return known
    if not word.isascii() or not word.isalpha() or word in _NOT_PLURAL or word.endswith("ing"):
        return word
    if word.endswith(("s", "x", "z", "ch", "sh")):
        return word + "es"
    if word.endswith("y") and len(word) > 1 and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + "s"


def name_words(name: str) -> list[str]:
    """The folded words of an identifier, in order: `getPullRequestFiles` → get, pull, request, file."""
    parts = [part.lower() for part in _NAME_PARTS.findall(name)]
    result: list[str] = []
    position = 0
    while position < len(parts):
        pair = _GLUED.get((parts[position], parts[position + 1])) if position + 1 < len(parts) else None
        if pair is not None:
            result.append(pair)
            position += 2
        else:
            _append(parts[position], result)
            position += 1
    return result


def text_words(text: str, limit: int = 200) -> list[str]:
    """The folded words of running text, in order, stop words included, at most about `limit` of them."""
    result: list[str] = []
    for part in _TEXT_PARTS.findall(text[: limit * 12].lower()):
        _append(part, result)
        if len(result) >= limit:
            break
    return result


def _append(part: str, result: list[str]) -> None:
    if part.isascii():
        result.append(fold_word(part))
    else:
        result.extend(_character_pairs(part))


def _character_pairs(run: str) -> list[str]:
    return [run] if len(run) < 3 else [run[i : i + 2] for i in range(len(run) - 1)]


# --- Words of a request or a tool as the lexical index counts them: split, lower-case, stemmed, without stop words.

MAX_WORD = 40
"""Longer runs (keys, hashes, base64) are cut: nobody searches for their tail."""

_STOP = (
    "a about above after again all also am an and any are as at be because been before being below between both "
    "but by can could did do does doing don down during each else ever few for from further had has have having "
    "he her here hers him his how however i if in into is it its itself just know let like ll m may me might more "
    "most must my need no nor not now of off ok on once only or other our ours out over own please re s same shall "
    "she should so some such t than thank thanks that the their theirs them then there these they this those "
    "through to too under until up us ve very want wants was we were what when where whether which while who whom "
    "why will with would you your yours im id ill ive dont doesnt isnt cant wont lets able help tell give show"
)
STOP_WORDS = frozenset(_STOP.split())

_WORD = re.compile(r"[^\W_]+")
_SEAM = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+|[^\W\d_A-Za-z]+")
_DENSE = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
_APOSTROPHES = str.maketrans("", "", "'\u2019")


def split_identifier(text: str) -> list[str]:
    """`getOrderById_v2` as `get Order By Id v 2`: the parts a reader sees, in order, in their own case."""
    return [part for word in _WORD.findall(text) for part in _SEAM.findall(word)]


def search_words(text: str) -> list[str]:
    """Every word of a text, lower-case, names taken apart and also kept whole."""
    found: list[str] = []
    for word in _WORD.findall(_without_accents(text)):
        if _DENSE.search(word):
            found.extend(_pairs(word.lower()))
            continue
        parts = _SEAM.findall(word)
        if len(parts) > 1:
            found.extend(part.lower()[:MAX_WORD] for part in parts)
        found.append(word.lower()[:MAX_WORD])
    return found


def search_terms(text: str) -> list[str]:
    """The words that count, stemmed, in order, repeats kept."""
    return [stem(word) for word in search_words(text) if word not in STOP_WORDS]


def _without_accents(text: str) -> str:
    """Compatibility forms folded and accents dropped, so that `Café` and `cafe` meet."""
    if text.isascii():
        return text.translate(_APOSTROPHES)
    folded = unicodedata.normalize("NFKD", text)
    return "".join(mark for mark in folded if not unicodedata.combining(mark)).translate(_APOSTROPHES)


def _pairs(word: str) -> list[str]:
    if len(word) == 1:
        return [word]
    return [word[at : at + 2] for at in range(min(len(word), 4 * MAX_WORD) - 1)]


_VOWEL = re.compile(r"[aeiouy]")
_UNSTEMMED = frozenset(("news", "status", "address", "process", "access", "alias", "series", "always", "this", "press"))
_INFLECTED = (("ies", "y"), ("ied", "y"), ("sses", "ss"), ("ings", ""), ("ing", ""), ("ed", ""), ("es", ""), ("s", ""))
_DERIVED = (
    ("ization", "iz"),
    ("isation", "iz"),
    ("ational", "at"),
    ("fulness", "ful"),
    ("iveness", "iv"),
    ("ation", "at"),
    ("ator", "at"),
    ("ment", ""),
    ("ness", ""),
    ("ion", ""),
    ("ise", "iz"),
    ("ize", "iz"),
    ("is", "iz"),
    ("ly", ""),
    ("er", ""),
    ("or", ""),
)


@lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """A light stem: an ending of number or tense off, then one of kind. Not a word, only a key."""
    if len(word) <= 3 or not word.isascii() or not word.isalpha() or word in _UNSTEMMED:
        return word
    return _without(_without(word, _INFLECTED), _DERIVED)


def _without(word: str, endings: tuple[tuple[str, str], ...]) -> str:
    for ending, instead in endings:
        if word.endswith(ending):
            root = word[: -len(ending)]
            if len(root) < 3 or not _VOWEL.search(root) or (ending == "s" and root[-1] in "sui"):
                continue
            return _even(root + instead)
    return _even(word)


def _even(root: str) -> str:
    """`plann` and `plan`, `creat` and `create`, `categori` and `category` get one form."""
    if len(root) > 3 and root[-1] == root[-2] and root[-1] not in "aeiousz":
        root = root[:-1]
    if len(root) > 3 and root[-1] == "e":
        root = root[:-1]
    if len(root) > 3 and root[-1] == "y":
        root = root[:-1] + "i"
    return root
