-- A known text, sealed with each key that this installation has used: a start with another key is refused.
create table secret_key_checks (
    key_id     bigint primary key,
    sealed     bytea not null,
    created_at timestamptz not null
);
