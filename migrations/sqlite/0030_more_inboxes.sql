-- Accounts of platforms whose inbox is read from now on are looked at.
insert into inbox_syncs (account_id, next_sync_at, created_at, updated_at, cursors)
select id, created_at, created_at, created_at, '{}'
from social_accounts
where platform in ('facebook', 'instagram', 'threads', 'twitter', 'tumblr')
on conflict (account_id)
do update set next_sync_at = excluded.next_sync_at;
