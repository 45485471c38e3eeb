#!/usr/bin/env python3
"""Compare the schema of the old migrations with that of the new 0001 file, on both engines.

    compare.py                      SQLite only
    compare.py -h /tmp/pg -p 54999  SQLite and Postgres (the options are those of psql; databases
                                    compare_old and compare_new are dropped and created)

A throw-away tool: it needs the old migrations. Exits with 1 if there is a difference.
"""

import difflib
import pathlib
import re
import sqlite3
import subprocess
import sys

MIGRATIONS = pathlib.Path(__file__).resolve().parent.parent
PG_BIN = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"))[-1:]


def files(engine):
    """Returns the files of the old and of the new schema, in order."""
    return sorted((MIGRATIONS / engine).glob("*.sql")), [MIGRATIONS / "new" / engine / "0001_schema.sql"]


def report(name, old, new):
    """Prints the differences of two lists of lines, and returns whether there are any."""
    diff = list(difflib.unified_diff(old, new, "old", "new", n=2, lineterm=""))
    print(f"{name}: {len(old)} lines of description,", f"{len(diff)} lines differ" if diff else "identical")
    print("\n".join(diff[:200]))
    return bool(diff)


def normal(sql):
    """Returns SQL without comments, in lower case, with single spaces and none beside punctuation."""
    text = re.sub(r"--[^\n]*", " ", sql).replace('"', "")
    text = re.sub(r"\s+", " ", text).strip().lower()
    return re.sub(r" ?([(),]) ?", r"\1", text)


# SQLite


def sqlite_schema(paths):
    db = sqlite3.connect(":memory:", isolation_level=None)
    # Newer than the SQLite of some Python versions; Crier's has it.
    db.create_function("octet_length", 1, lambda v: None if v is None else len(v.encode() if isinstance(v, str) else v))
    # As in `Db::migrate`: sqlx turns foreign keys on, and each file runs in a transaction.
    db.execute("PRAGMA foreign_keys = ON")
    for path in paths:
        db.executescript(f"BEGIN; {path.read_text()}\n; COMMIT;")
    assert not db.execute("PRAGMA foreign_key_check").fetchall()
    return db


def parts(body):
    """Splits the body of CREATE TABLE at its outer commas."""
    depth, start = 0, 0
    for i, c in enumerate(body):
        depth += (c == "(") - (c == ")")
        if c == "," and not depth:
            yield body[start:i]
            start = i + 1
    yield body[start:]


def describe_sqlite(db):
    out = []
    tables = "SELECT name, sql FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name"
    for table, sql in db.execute(tables).fetchall():
        text = normal(sql)
        body, options = text[text.index("(") + 1 :].rsplit(")", 1)
        out.append(f"table {table} {options}")
        # Names, types, defaults, nullability, and the position in the primary key, in the order of the columns.
        out += [f"  column {row}" for row in db.execute(f"PRAGMA table_xinfo({table})")]
        # Everything else: checks, AUTOINCREMENT, collations, references. The order of columns is above.
        out += [f"  text {part}" for part in parts(body)]
        out += sorted(f"  foreign key {row[2:]}" for row in db.execute(f"PRAGMA foreign_key_list({table})"))
        # In the order in which the planner considers them.
        for _, index, unique, origin, partial in db.execute(f"PRAGMA index_list({table})").fetchall():
            out.append(f"  index {index} unique={unique} origin={origin} partial={partial}")
            out += [f"    {row}" for row in db.execute(f"PRAGMA index_xinfo({index})")]
            sql = db.execute("SELECT sql FROM sqlite_schema WHERE name = ? AND sql IS NOT NULL", [index]).fetchall()
            out += [f"    {normal(row[0])}" for row in sql]
        # In the order of their creation, which is that of their execution.
        triggers = "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = ? ORDER BY rowid"
        out += [f"  trigger {name} {normal(sql)}" for name, sql in db.execute(triggers, [table])]
        out += [f"  row {row}" for row in db.execute(f"SELECT * FROM {table}")]
    others = "SELECT type, name FROM sqlite_schema WHERE type NOT IN ('table', 'index', 'trigger')"
    out += [f"other {row}" for row in db.execute(others)]
    out += [f"sequence {row}" for row in db.execute("SELECT * FROM sqlite_sequence WHERE seq > 0")]
    return out


# Postgres

# What pg_dump does not show: the physical position of columns, and the order in which the planner considers indexes.
# The order of indexes is that of their OIDs, but for the primary key: CREATE TABLE makes it before unique constraints,
# and an old migration made one after them (sandbox_posts).
PG_EXTRA = """
SELECT format('%s column %s %s %s', c.relname, a.attnum, a.attname, a.attisdropped)
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND a.attnum > 0
ORDER BY c.relname, a.attnum;
SELECT format('%s indexes %s', c.relname, string_agg(i.relname, ' ' ORDER BY NOT x.indisprimary, i.oid))
FROM pg_index x JOIN pg_class c ON c.oid = x.indrelid JOIN pg_class i ON i.oid = x.indexrelid
WHERE c.relnamespace = 'public'::regnamespace
GROUP BY c.relname ORDER BY c.relname;
SELECT format('%s %s %s', relname, relkind, reloptions) FROM pg_class
WHERE relnamespace = 'public'::regnamespace AND reloptions IS NOT NULL ORDER BY relname;
SELECT format('%s %s %s %s %s', proname, provolatile, proparallel, prorows, proconfig) FROM pg_proc
WHERE pronamespace = 'public'::regnamespace ORDER BY proname;
SELECT format('extension %s', extname) FROM pg_extension ORDER BY extname;
"""


def run(program, *args):
    path = str(PG_BIN[0] / program) if PG_BIN else program
    return subprocess.run([path, *args], check=True, capture_output=True, text=True).stdout


def describe_postgres(paths, options, name):
    psql = lambda database, *args: run("psql", *options, "-XqAt", "-v", "ON_ERROR_STOP=1", "-d", database, *args)
    psql("postgres", "-c", f"DROP DATABASE IF EXISTS {name}", "-c", f"CREATE DATABASE {name}")
    for path in paths:
        # As sqlx does: in a transaction, unless the file says otherwise.
        alone = path.read_text().startswith("-- no-transaction")
        psql(name, "-f", str(path), *([] if alone else ["-1"]))
    dump = run("pg_dump", *options, "--inserts", name)
    # Comments of the dump, and those in the bodies of functions.
    lines = [line for line in dump.splitlines() if line.strip() and not line.lstrip().startswith("--")]
    lines = [line for line in lines if not re.match(r"\\(un)?restrict ", line)]
    return lines, psql(name, "-c", PG_EXTRA).splitlines()


def main():
    differs = False
    old, new = files("sqlite")
    differs |= report("SQLite", describe_sqlite(sqlite_schema(old)), describe_sqlite(sqlite_schema(new)))
    if options := sys.argv[1:]:
        old, new = files("postgres")
        old, new = describe_postgres(old, options, "compare_old"), describe_postgres(new, options, "compare_new")
        differs |= report("Postgres, pg_dump --inserts", old[0], new[0])
        differs |= report("Postgres, pg_dump --inserts, sorted", sorted(old[0]), sorted(new[0]))
        differs |= report("Postgres, catalog", old[1], new[1])
    return differs


if __name__ == "__main__":
    sys.exit(main())
