-- LinkedIn pages are looked at from now on. Of persons nothing can be read.
insert into inbox_syncs (account_id, next_sync_at, created_at, updated_at, cursors)
select id, created_at, created_at, created_at, '{}'
from social_accounts
where platform = 'linkedin'
    and external_id like 'urn:li:organization:%'
on conflict (account_id)
do update set next_sync_at = excluded.next_sync_at;

-- What was deleted at the platform, and which messages unread_count counts: one of them that is deleted is not unread
-- any more.
alter table messages add column deleted_at timestamptz;
alter table messages add column is_unread boolean not null default false;
update messages
set is_unread = true
where id in (
    select id
    from (
        select m.id, c.unread_count, row_number() over (partition by m.conversation_id order by m.id desc) as place
        from conversations c
        join messages m on m.conversation_id = c.id and m.direction = 'inbound' and m.status = 'received'
        where c.unread_count > 0
    ) as newest
    where place <= unread_count
);
create index messages_unread on messages (conversation_id) where is_unread;
-- The newest messages of an account, of which it is asked whether they are still there.
create index messages_recent on messages (account_id, sent_at, external_id)
    where direction = 'inbound' and status = 'received' and deleted_at is null;
