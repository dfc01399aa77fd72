-- What several processes read, in parts, until a time. Values last: a look at the rest reads no page of theirs.
CREATE TABLE part (shelf TEXT NOT NULL, name TEXT NOT NULL, part INTEGER NOT NULL, until REAL NOT NULL,
    value BLOB NOT NULL, PRIMARY KEY (shelf, name, part));
CREATE INDEX part_until ON part (until)
