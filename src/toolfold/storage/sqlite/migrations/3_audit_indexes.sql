-- Lines come in the order of their time, and nobody asks for one selection: each index would cost every line.
DROP INDEX trail_by_selection;
DROP INDEX trail_by_time;
