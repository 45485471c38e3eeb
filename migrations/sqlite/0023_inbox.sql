-- The inbox. An account in several brands has a conversation in each: status, assignee, tags and unread count are the
-- brand's own. account_id has no foreign key: a conversation outlives the account.
create table conversations (
    id                      integer primary key autoincrement,
    brand_id                bigint not null references brands (id) on delete cascade,
    account_id              bigint not null,
    platform                text not null,
    type                    text not null check (type in ('dm', 'comment', 'mention')),
    status                  text not null check (status in ('open', 'assigned', 'snoozed', 'resolved', 'spam')),
    unread_count            integer not null,
    assignee_id             bigint references users (id) on delete set null,
    snoozed_until           timestamptz,
    last_message_at         timestamptz not null,
    last_inbound_at         timestamptz,
    post_id                 bigint,
    created_at              timestamptz not null,
    updated_at              timestamptz not null,
    -- The platform's name of the thread.
    thread_id               text not null,
    participant_external_id text,
    participant_name        text,
    participant_username    text,
    participant_avatar_url  text,
    subject_external_id     text,
    subject_url             text,
    last_message_preview    text not null,
    -- What the connector needs to answer: the newest that it gave.
    reply_context           jsonb not null
);
create unique index conversations_thread on conversations (brand_id, account_id, type, thread_id);
-- Answers every list and its count by itself, whatever the filter.
create index conversations_list on conversations
    (brand_id, last_message_at, id, status, type, platform, account_id, assignee_id, unread_count);
create index conversations_snoozed on conversations (snoozed_until) where snoozed_until is not null;
create index conversations_assignee on conversations (assignee_id) where assignee_id is not null;

create table conversation_tags (
    brand_id        bigint not null references brands (id) on delete cascade,
    tag             text not null,
    conversation_id bigint not null references conversations (id) on delete cascade,
    primary key (brand_id, tag, conversation_id)
);
create index conversation_tags_conversation on conversation_tags (conversation_id, tag);

-- The words of a conversation's participant and messages, each once, as common/src/domain/words.rs makes them: a search
-- is a range of this key.
create table conversation_words (
    brand_id        bigint not null references brands (id) on delete cascade,
    word            text not null,
    conversation_id bigint not null,
    primary key (brand_id, word, conversation_id)
) without rowid;

-- status 'received' is of what came from the platform, the others of replies.
create table messages (
    id              integer primary key autoincrement,
    conversation_id bigint not null references conversations (id) on delete cascade,
    brand_id        bigint not null,
    account_id      bigint not null,
    direction       text not null check (direction in ('inbound', 'outbound')),
    status          text not null check (status in ('received', 'pending', 'sent', 'failed')),
    sent_at         timestamptz not null,
    author_user_id  bigint references users (id) on delete set null,
    call_started_at timestamptz,
    attempts        integer not null,
    next_attempt_at timestamptz,
    created_at      timestamptz not null,
    updated_at      timestamptz not null,
    external_id     text,
    author_name     text,
    marker          jsonb,
    error           jsonb,
    body            text not null
);
create index messages_conversation on messages (conversation_id, sent_at, id);
create unique index messages_external on messages (brand_id, account_id, external_id) where external_id is not null;
create index messages_author on messages (author_user_id) where author_user_id is not null;

-- How far an account's messages were read. cursors: an object with the connector's own cursor of each stream. requests:
-- how often a look was asked for, so that a run sees what was asked for meanwhile. next_sync_at is null where the platform has no inbox.
create table inbox_syncs (
    account_id   bigint primary key references social_accounts (id) on delete cascade,
    next_sync_at timestamptz,
    synced_at    timestamptz,
    requests     bigint not null default 0,
    failures     integer not null default 0,
    created_at   timestamptz not null,
    updated_at   timestamptz not null,
    last_error   jsonb,
    cursors      jsonb not null
);
create index inbox_syncs_due on inbox_syncs (next_sync_at) where next_sync_at is not null;
insert into inbox_syncs (account_id, next_sync_at, created_at, updated_at, cursors)
select id, created_at, created_at, created_at, '{}' from social_accounts;

-- is_own: the account's answer, to the comment parent_id. key: an answer is written once.
alter table sandbox_comments add column handle text;
alter table sandbox_comments add column is_own boolean not null default false;
alter table sandbox_comments add column parent_id bigint;
alter table sandbox_comments add column key text;
update sandbox_comments set handle = (select p.handle from sandbox_posts p where p.id = sandbox_comments.post_id);
create index sandbox_comments_handle on sandbox_comments (handle, created_at, id);
create unique index sandbox_comments_once on sandbox_comments (key) where key is not null;

-- Finds the post that is commented.
create index post_targets_external on post_targets (account_id, external_id) where external_id is not null;
