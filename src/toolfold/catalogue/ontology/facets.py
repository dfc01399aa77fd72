"""What a tool acts on and what it does to it, from its name first and its description second.

These are the keys by which a full category is divided. They depend on the tool and its server's naming habit alone.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence

from msgspec import Struct

from toolfold.catalogue.ontology.classifier import split_description
from toolfold.types import Tool
from toolfold.words import NAME_STOP_WORDS, fold_word, name_words, text_words

# --- The things that tools act on, as people name them: the words that may become a category below a full part.

_THINGS = """
access_key access_token account achievement action_item activity actor ad ad_group ad_set addon address agenda agent
agreement air_quality airdrop airport alarm album alert alias allowance analysis analytics anime annotation
announcement answer api_key app application appointment archive article artifact artist artwork assertion assessment
asset assignment assistant association asteroid attachment attack attendee auction audience audio audit
authentication author availability avatar average backlink backup badge balance balance_sheet bandwidth bank
bank_account banner battery benchmark bibliography bid bill billing block block_number blog blog_article blog_post
board bond book booking bookmark bot bounty branch brand breakpoint broadcast broker browser bucket budget bug build
building bundle bus bus_stop business button cache calculation calendar calendar_event call camera campaign
candidate candle canvas capacity caption card cart case cash_flow cast catalog category cell certificate chain
challenge champion channel chapter character charge chart chat checklist checkout checkpoint child_page chord chunk
citation city claim class clause client clip clipboard clock cluster code coin collaborator collection color column
command comment commit commodity community company compartment competitor completion compliance component compound
concept condition conference configuration connection connector console constraint contact contact_list container
content_type contest contract contributor conversation cookie coordinate cost countdown country coupon course court
crash creative credential credit credit_card cron currency cursor custom_field customer cycle dashboard data_source
database dataframe dataset date deadline deal deck defect definition delivery department dependency deployment
deposit derivative design destination device diagram dialog dictionary diff dimension direct_message direction
directory disclosure discount discussion disk dispute distance dividend dns_record doc doctor document documentation
domain download draft drawing drive driver drug dungeon earnings earthquake edge element email email_account
email_address email_template embedding emoji employee encounter engagement engine entity entry environment
environment_variable epic episode equation error escalation estimate etf evaluation event evidence exam exception
exchange exchange_rate execution exercise expense experiment export expression extension fact favorite feature
feature_flag fee feed feedback field figure file file_content filing film filter finding firewall fixture flashcard
flight flow folder follower font food footnote forecast forex fork form form_field formula forum frame framework
friend fulfillment function fund funding_rate future gallery game gas gas_price gateway gene genre gift_card goal
grade graph greeting group growth guest guide guild habit hash hashtag heading headline highlight histogram history
holder holding holiday home hook host hostname hotel hour house hypothesis icon image impact import inbox incident
income_statement index indicator industry inference inflation influencer ingredient initiative insider insight
inspection instance institution instruction instrument integration interface interview inventory investigation
investor invitation invite invoice ip_address isolation issue issue_link issue_type job job_posting journal key
keyboard keyword kit knowledge_base kpi label landmark language law layer layout lead leaderboard league leave
lesson letter library license light limit line_item liquidity listing load_balancer loan location log log_group logo
lyrics machine mailbox malware map margin market market_cap match material matrix meal measurement media medication
meeting member membership memory mention menu merchant merge_conflict merge_request mesh message metric migration
milestone mind_map minute model module molecule monitor monster mouse movie moving_average music mutation
name_server namespace network network_interface news newsletter nft node note notebook notification nutrition
object_storage objective observation odds offer office officer ontology open_interest opinion opportunity option
option_chain order order_book organization oscillator outage outline overlay owner package page palette panel paper
paragraph parameter parcel park participant partner password patch patent patient pattern payment payment_link
payout payroll peer people performance period permission person persona phase phone phone_call phone_number photo
phrase picture pie_chart pipeline pixel place plan planet platform player playlist plot plugin pod podcast poem
point policy poll pool port portfolio position post postcode prediction preference preprint prescription
presentation preset price price_alert price_history price_target privilege problem procedure process product profile
profit program progress project promotion prompt property_listing proposal protein protocol provider proxy
publication pull_request purchase purchase_order query_plan quest question queue quiz quota quote race rack radio
random range rank ranking rating ratio reaction receipt recipe recipient recommendation record recording redirect
reference refund region regulation relation relationship release release_note reminder rental replica reply report
repository requirement reservation resident resource restaurant restriction resume revenue review revision reward
risk risk_score roadmap robot role rollback room roster route router row rule run runner salary sale sample sandbox
satellite savings scan scenario scene schedule scheduler schema school score screen screener screenshot script
season seat secret section sector security security_group segment sensor sentence sentiment sequence series server
service_account session setting shader shape shard sheet shift shipment shipping shop shortcut show signal signature
simulation site sitemap skill sku slide slot smart_contract sms snapshot snippet solution song sound source space
species speech spread spreadsheet sprint squad ssh_key stack staff stage stake standing statement station statistic
step stock stock_price stop storage store story strategy stream street strike student style subject submission
subnet subreddit subresource subscriber subscription subtask subtitle suggestion suite supplier supply survey swap
switch symbol symptom tab table tag target task task_list tax taxonomy team team_member template tenant term
terminal territory test test_case test_plan test_run text_box theme thought thread threat thumbnail ticker ticket
tide tile time_entry timeline timer timesheet timezone tip title todo token topic tournament trace track trade
trader traffic trailer train training transaction transcript transfer transit transition translation trend trial
trigger trip trivia tutorial tweet unit_test university upload usage user user_group user_profile utility vacancy
validator valuation variable variant vault vector vehicle vendor venue verse version video view virtual_machine
visitor visualization vitamin voice volatility volume vote voucher vulnerability wallet wallet_address warehouse
watchlist weather web_page webhook webinar website widget wifi wiki window withdrawal word work_item worker workflow
worklog workout worksheet workspace yield yield_curve zone
"""

THINGS = frozenset(" ".join(fold_word(part) for part in thing.split("_")) for thing in _THINGS.split())
PAIRS = frozenset(tuple(thing.split(" ")) for thing in THINGS if " " in thing)

_VERBS = {
    "Find": """
    search find query explore discover look lookup locate filter ask answer recommend suggest whois list browse
    show display enumerate compare identify detect
    """,
    "Read": """
    get read fetch view describe retrieve load see open resolve preview peek head download export tail check
    count inspect scan watch monitor track poll trace
    """,
    "Create & change": """
    create add new insert make register define build import upload save store append clone duplicate write draft
    fork setup init initialize record log remember send post reply forward publish submit share invite notify
    push deploy order buy place book schedule sign comment commit enroll subscribe join update set edit modify
    change patch put upsert rename replace move copy toggle mark enable disable configure assign tag label sort
    link attach pin star lock unlock manage complete close reopen archive restore sync merge apply bulk batch
    activate deactivate transfer swap sell approve grant vote react follow like connect start begin rate
    """,
    "Remove": """
    delete remove clear drop cancel destroy purge reset revoke unassign unlink detach stop kill terminate
    uninstall unsubscribe unfollow disconnect revert undo unpin trash forget leave unregister flush clean expire
    """,
    "Run": """
    run execute call invoke trigger test generate convert calculate compute analyze evaluate validate verify
    translate summarize transform encode decode parse extract render format solve simulate predict forecast
    optimize classify compile debug train process play pause resume wait ping click type press navigate scroll
    hover capture scrape crawl transcribe compress resize crop encrypt decrypt estimate draw plot perform do
    think plan review profile benchmark refresh restart reboot launch switch speak listen echo roll use select
    handle help
    """,
}
"""What tools do, in five actions, with the verbs that tell."""

ACTION = {fold_word(verb): action for action, verbs in _VERBS.items() for verb in verbs.split()}
UNSAID = "Read"


class Facets(Struct, frozen=True):
    """`objects` are the things its name speaks of, the main one first; `mentioned` those of its description."""

    objects: tuple[str, ...]
    mentioned: tuple[str, ...]
    action: str
    verb: str
    head: str = ""
    """The word its name ends on, known or not: what is left to tell tools apart by where nothing better does."""


def all_facets(tools: Sequence[Tool]) -> list[Facets]:
    habits = _habits(tools)
    return [_facets(tool, habits[tool.server]) for tool in tools]


def _habits(tools: Sequence[Tool]) -> dict[str, frozenset[str]]:
    """Per server, the words that say nothing inside it: its own name, and a prefix that most of its tools carry."""
    openings: dict[str, Counter[str]] = defaultdict(Counter)
    totals: Counter[str] = Counter()
    for tool in tools:
        totals[tool.server] += 1
        openings[tool.server].update(set(name_words(tool.name)[:2]))
    return {
        server: frozenset(name_words(server))
        | {
            word
            for word, count in openings[server].items()
            if total >= 4 and count > 0.6 * total and word not in ACTION
        }
        for server, total in totals.items()
    }


def _facets(tool: Tool, habit: frozenset[str]) -> Facets:
    words = name_words(tool.name)
    verb = next((word for word in words if word in ACTION), "")
    named = _nouns(words, habit, stop_at_preposition=True)
    first, _ = split_description(tool.definition.description)
    said = text_words(first, 24)
    if not verb:
        verb = next((word for word in said[:4] if word in ACTION), "")
    mentioned = _nouns(said, habit | {"server"})[:3]
    heads = [word for word in words if word not in ACTION and word not in habit and word not in NAME_STOP_WORDS]
    return Facets(
        objects=tuple(named),
        mentioned=tuple(mentioned),
        action=ACTION.get(verb, UNSAID),
        verb=verb,
        head=next((word for word in reversed(heads) if len(word) > 2 and word.isalpha()), ""),
    )


_PREPOSITIONS = frozenset(("by", "for", "from", "to", "in", "with", "of", "on", "at", "via", "into", "as", "using"))


def _nouns(words: list[str], habit: frozenset[str], *, stop_at_preposition: bool = False) -> list[str]:
    """The things among words. In a name the last of the leading phrase is first: `list_team_members` → member, team."""
    phrases: list[list[str]] = [[]]
    position = 0
    while position < len(words):
        pair = tuple(words[position : position + 2])
        if pair in PAIRS:
            phrases[-1].append(" ".join(pair))
            position += 2
            continue
        word = words[position]
        if stop_at_preposition and word in _PREPOSITIONS and phrases[-1]:
            phrases.append([])
        elif word in THINGS and word not in habit and (position or word not in ACTION):
            phrases[-1].append(word)
        position += 1
    ordered = [noun for phrase in phrases for noun in (reversed(phrase) if stop_at_preposition else phrase)]
    return list(dict.fromkeys(ordered))
