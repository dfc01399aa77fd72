-- What several processes share. Times are seconds since the machine was started.
CREATE TABLE counter (namespace TEXT NOT NULL, key TEXT NOT NULL, value REAL NOT NULL, until REAL NOT NULL,
    for_s REAL NOT NULL, PRIMARY KEY (namespace, key)) WITHOUT ROWID;
CREATE TABLE lease (name TEXT PRIMARY KEY, holder TEXT NOT NULL, until REAL NOT NULL, for_s REAL NOT NULL) WITHOUT ROWID
