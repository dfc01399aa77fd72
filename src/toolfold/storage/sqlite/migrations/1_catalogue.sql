CREATE TABLE generation (number INTEGER PRIMARY KEY, record BLOB NOT NULL);
CREATE TABLE change (generation INTEGER NOT NULL, seq INTEGER NOT NULL, record BLOB NOT NULL,
    PRIMARY KEY (generation, seq)) WITHOUT ROWID;
CREATE TABLE server (name TEXT PRIMARY KEY, record BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE tool (folded TEXT PRIMARY KEY, tool_id TEXT NOT NULL, server TEXT NOT NULL, version INTEGER NOT NULL,
    record BLOB NOT NULL) WITHOUT ROWID;
CREATE INDEX tool_by_server ON tool (server);
CREATE TABLE version (tool TEXT NOT NULL, number INTEGER NOT NULL, fingerprint TEXT NOT NULL, tool_id TEXT NOT NULL,
    first_seen REAL NOT NULL, last_seen REAL NOT NULL, definition BLOB NOT NULL);
CREATE UNIQUE INDEX version_by_number ON version (tool, number, fingerprint);
CREATE TABLE tag (tag TEXT NOT NULL, tool TEXT NOT NULL, PRIMARY KEY (tag, tool)) WITHOUT ROWID;
CREATE TABLE node (key TEXT PRIMARY KEY, record BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE edge (parent TEXT NOT NULL, child TEXT NOT NULL, PRIMARY KEY (parent, child)) WITHOUT ROWID;
CREATE INDEX edge_by_child ON edge (child);
CREATE TABLE placement (node TEXT NOT NULL, tool TEXT NOT NULL, PRIMARY KEY (node, tool)) WITHOUT ROWID;
CREATE INDEX placement_by_tool ON placement (tool);
CREATE TABLE state (namespace TEXT NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL,
    PRIMARY KEY (namespace, key)) WITHOUT ROWID;
