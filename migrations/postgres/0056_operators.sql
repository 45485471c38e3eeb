-- The operator's right belongs to a user until it is taken away. It was the right of the first user of the first
-- workspace, whoever that was after a deletion.
alter table users add column is_operator boolean not null default false;
update users set is_operator = true where id = (select id from users order by workspace_id, id limit 1);

create table operator_changes (
    id         bigint generated always as identity primary key,
    email      text not null,
    change     text not null,
    created_at timestamptz not null
);
