"""The things that tools act on, as people name them: the words that may become a category below a full part.

A closed list keeps the names of categories sensible whatever a server writes: "Invoices" and "Comments" can stand, a
stray adjective of a description cannot. `_` joins two words that belong together.
"""

from toolfold.catalogue.words import fold

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

THINGS = frozenset(" ".join(fold(part) for part in thing.split("_")) for thing in _THINGS.split())
PAIRS = frozenset(tuple(thing.split(" ")) for thing in THINGS if " " in thing)
