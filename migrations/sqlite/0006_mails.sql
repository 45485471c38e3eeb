-- The outbox: mail to be sent and mail that was.
create table mails (
    id         integer primary key autoincrement,
    -- On whose behalf; the mail goes with the user.
    user_id    bigint not null references users (id) on delete cascade,
    recipient  text not null,
    subject    text not null,
    body_text  text not null,
    message_id text not null unique,
    status     text not null check (status in ('pending', 'sent', 'failed')),
    error      text,
    created_at timestamptz not null,
    sent_at    timestamptz
);
create index mails_user on mails (user_id);
