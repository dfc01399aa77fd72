-- What gateways share for a while, in parts. Compressed outputs and sealed texts gain nothing from compression.
CREATE TABLE part (shelf bytea, name bytea, part integer, until double precision NOT NULL, value bytea NOT NULL,
    PRIMARY KEY (shelf, name, part));
ALTER TABLE part ALTER COLUMN value SET STORAGE EXTERNAL;
CREATE INDEX part_by_end ON part (until);
