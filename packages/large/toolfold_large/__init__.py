"""The large encoder of toolfold's search. `weights` holds it; `toolfold.search.encoder` reads it."""
