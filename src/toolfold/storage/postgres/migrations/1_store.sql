-- Keys are the bytes of UTF-8: any text fits, and their order is that of SQLite, whatever the database's collation.
-- Very long ones end in a hash, since an index takes no more than a third of a page.
CREATE TABLE generation (number bigint PRIMARY KEY, record bytea NOT NULL);
CREATE TABLE change (generation bigint, seq integer, record bytea NOT NULL, PRIMARY KEY (generation, seq));
CREATE TABLE server (name bytea PRIMARY KEY, record bytea NOT NULL);
CREATE TABLE tool (folded bytea PRIMARY KEY, tool_id bytea NOT NULL, server bytea NOT NULL, version integer NOT NULL,
    record bytea NOT NULL);
CREATE INDEX tool_by_server ON tool (server);
CREATE TABLE version (tool bytea, number integer, fingerprint bytea NOT NULL, tool_id bytea NOT NULL,
    first_seen double precision NOT NULL, last_seen double precision NOT NULL, definition bytea NOT NULL);
CREATE UNIQUE INDEX version_by_number ON version (tool, number, sha256(fingerprint));
CREATE TABLE tag (tag bytea, tool bytea, PRIMARY KEY (tag, tool));
CREATE INDEX tag_by_tool ON tag (tool);
CREATE TABLE node (key bytea PRIMARY KEY, record bytea NOT NULL);
CREATE TABLE edge (parent bytea, child bytea, PRIMARY KEY (parent, child));
CREATE INDEX edge_by_child ON edge (child);
CREATE TABLE placement (node bytea, tool bytea, PRIMARY KEY (node, tool));
CREATE INDEX placement_by_tool ON placement (tool);
CREATE TABLE state (namespace bytea, id bytea, key bytea NOT NULL, value bytea NOT NULL, PRIMARY KEY (namespace, id));
CREATE TABLE trail (number bigint PRIMARY KEY, at double precision NOT NULL, caller bytea NOT NULL,
    session bytea NOT NULL, selection bytea NOT NULL, record bytea NOT NULL);
CREATE INDEX trail_by_session ON trail (sha256(session), number);
-- The number of the last line ever written. Its lock lets gateways append one after the other, so that whoever reads on
-- from a number misses none.
CREATE TABLE trail_end (number bigint NOT NULL);
INSERT INTO trail_end VALUES (0);
-- Times are seconds since 1970 by the database's clock.
CREATE TABLE counter (namespace bytea, key bytea, value double precision NOT NULL, until double precision NOT NULL,
    for_s double precision NOT NULL, PRIMARY KEY (namespace, key));
CREATE TABLE lease (name bytea PRIMARY KEY, holder bytea NOT NULL, until double precision NOT NULL,
    for_s double precision NOT NULL);
