CREATE TABLE trail (number INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, caller TEXT NOT NULL,
    session TEXT NOT NULL, selection TEXT NOT NULL, record BLOB NOT NULL);
CREATE INDEX trail_by_session ON trail (session, caller, number);
CREATE INDEX trail_by_selection ON trail (selection, number);
CREATE INDEX trail_by_time ON trail (at);
