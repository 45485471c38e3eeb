-- Posts of the month in a workspace whose plan has no cap, spread over slots: concurrent requests rarely wait for the same
-- row. `usage` stays as it is: with a cap, all requests count in that one row.
create table usage_slots (
    workspace_id bigint not null references workspaces (id) on delete cascade,
    month        text not null,
    slot         bigint not null,
    posts        bigint not null,
    primary key (workspace_id, month, slot)
);
