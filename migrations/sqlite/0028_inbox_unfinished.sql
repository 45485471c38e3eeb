-- The streams with which the next look goes on; empty: it reads all of them.
alter table inbox_syncs add column unfinished jsonb not null default '[]';
