-- The key of the first start, until it was shown: there to be made, or made and perhaps never seen. A start that ended before
-- is made up for by the next one, with another key.
create table first_key (
    id      integer primary key check (id = 1),
    user_id bigint not null references users (id) on delete cascade,
    key_id  bigint references api_keys (id) on delete set null
);
